#!/bin/sh
# Install stream-metrics from the tree it is called in into a virtual environment at $1: pinned
# packages with their hashes, and nothing that only tests need. Its own wheel is of those in the
# folder $2 (`make dist` makes them), or is built here with all that can be compiled.
set -eu
prefix=${1:?usage: build.sh PREFIX [WHEELS]}
wheels=${2:-}
pip="$prefix/bin/python -m pip --disable-pip-version-check --no-cache-dir"

python3 -m venv "$prefix"
$pip install --quiet --require-hashes -r deploy/docker/image-requirements.txt

if [ -z "$wheels" ]; then
	wheels=$(mktemp -d)
	python3 -m venv "$prefix.tools"
	"$prefix.tools/bin/python" -m pip --disable-pip-version-check --no-cache-dir install --quiet \
		--require-hashes -r deploy/docker/build-requirements.txt
	# Modules are compiled from their types, which are partly those of the packages that they use.
	"$prefix.tools/bin/python" - "$prefix" <<-'END'
		import pathlib, sys, sysconfig
		used = next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"))
		pathlib.Path(sysconfig.get_path("purelib"), "used.pth").write_text(f"{used}\n")
		END
	STREAM_METRICS_BUILD=compiled "$prefix.tools/bin/python" -m pip --disable-pip-version-check wheel \
		--quiet --no-deps --no-build-isolation --wheel-dir "$wheels" .
	rm -rf "$prefix.tools"
fi

set -- "$wheels/stream_metrics"-*.whl
[ -e "$1" ] || { echo "error: no wheel of stream_metrics in $wheels" >&2; exit 1; }
{
	printf 'stream_metrics==%s' "$(basename "$1" | cut -d - -f 2)"
	sha256sum "$@" | sed 's/ .*//; s/^/ --hash=sha256:/' | tr -d '\n'
} >"$prefix/wheels.txt"
$pip install --quiet --no-index --no-deps --require-hashes --find-links "$wheels" -r "$prefix/wheels.txt"
rm "$prefix/wheels.txt"
"$prefix/bin/python" -P -c 'from stream_metrics.core.compiled import COMPILED, ENGINE
assert ENGINE == COMPILED, "the wheels are for another Python"'
"$prefix/bin/python" -m pip uninstall --quiet --yes pip setuptools
