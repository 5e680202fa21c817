#!/bin/sh
# Install stream-metrics from the tree it is called in, with its compiled kernel, into a virtual
# environment at $1: pinned packages with their hashes, and nothing that only tests need.
set -eu
prefix=${1:?usage: build.sh PREFIX}
pip="$prefix/bin/python -m pip --disable-pip-version-check --no-cache-dir"

python3 -m venv "$prefix"
python3 -m venv "$prefix.tools"
"$prefix.tools/bin/python" -m pip --disable-pip-version-check --no-cache-dir install --quiet \
	--require-hashes -r deploy/docker/build-requirements.txt

wheels=$(mktemp -d)
PATH="$prefix.tools/bin:$PATH" maturin build --quiet --release --locked --auditwheel skip \
	--manifest-path kernel/Cargo.toml --interpreter "$prefix/bin/python" --out "$wheels"
"$prefix.tools/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps \
	--no-build-isolation --wheel-dir "$wheels" .

$pip install --quiet --require-hashes -r deploy/docker/requirements.txt
$pip install --quiet --no-index --no-deps "$wheels"/*.whl
"$prefix/bin/python" -m pip uninstall --quiet --yes pip setuptools
rm -rf "$wheels" "$prefix.tools"
