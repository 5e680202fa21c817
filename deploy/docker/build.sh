#!/bin/sh
# Install stream-metrics from the tree it is called in, with all that can be compiled of it, into a
# virtual environment at $1: pinned packages with their hashes, and nothing that only tests need.
set -eu
prefix=${1:?usage: build.sh PREFIX}
pip="$prefix/bin/python -m pip --disable-pip-version-check --no-cache-dir"

python3 -m venv "$prefix"
python3 -m venv "$prefix.tools"
"$prefix.tools/bin/python" -m pip --disable-pip-version-check --no-cache-dir install --quiet \
	--require-hashes -r deploy/docker/build-requirements.txt

$pip install --quiet --require-hashes -r deploy/docker/requirements.txt
# Modules are compiled from their types, which are partly those of the packages that they use.
"$prefix.tools/bin/python" - "$prefix" <<-'END'
	import pathlib, sys, sysconfig
	used = next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"))
	pathlib.Path(sysconfig.get_path("purelib"), "used.pth").write_text(f"{used}\n")
	END

wheels=$(mktemp -d)
PATH="$prefix.tools/bin:$PATH" maturin build --quiet --release --locked --auditwheel skip \
	--manifest-path kernel/Cargo.toml --interpreter "$prefix/bin/python" --out "$wheels"
STREAM_METRICS_MYPYC=1 "$prefix.tools/bin/python" -m pip --disable-pip-version-check wheel --quiet \
	--no-deps --no-build-isolation --wheel-dir "$wheels" .

$pip install --quiet --no-index --no-deps "$wheels"/*.whl
"$prefix/bin/python" -m pip uninstall --quiet --yes pip setuptools
rm -rf "$wheels" "$prefix.tools"
