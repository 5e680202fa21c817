#!/bin/sh
# Install stream-metrics from the tree it is called in into a virtual environment at $1: pinned
# packages with their hashes, and nothing that only tests need. Its own wheels are those of the
# folder $2 (`make dist` makes them), or are built here with all that can be compiled.
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
	PATH="$prefix.tools/bin:$PATH" maturin build --quiet --release --locked --auditwheel skip \
		--manifest-path kernel/Cargo.toml --interpreter "$prefix/bin/python" --out "$wheels"
	STREAM_METRICS_MYPYC=1 "$prefix.tools/bin/python" -m pip --disable-pip-version-check wheel \
		--quiet --no-deps --no-build-isolation --wheel-dir "$wheels" .
	rm -rf "$prefix.tools"
fi

for name in stream_metrics stream_metrics_kernel; do
	set -- "$wheels/$name"-*.whl
	[ -e "$1" ] || { echo "error: no wheel of $name in $wheels" >&2; exit 1; }
	printf '%s==%s' "$name" "$(basename "$1" | cut -d - -f 2)"
	sha256sum "$@" | sed 's/ .*//; s/^/ --hash=sha256:/' | tr -d '\n'
	echo
done >"$prefix/wheels.txt"
$pip install --quiet --no-index --no-deps --require-hashes --find-links "$wheels" -r "$prefix/wheels.txt"
rm "$prefix/wheels.txt"
"$prefix/bin/python" -P -c 'from stream_metrics.core.compiled import COMPILED, ENGINE
assert ENGINE == COMPILED, "the wheels are for another Python"'
"$prefix/bin/python" -m pip uninstall --quiet --yes pip setuptools
