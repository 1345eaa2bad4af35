#!/bin/sh
# Puts uPlot, the chart library, under dashboard/vendor: one exact version, taken by npm from wherever this machine
# takes packages, and refused unless its sum is the one below. The result is committed; run it to change the version.
set -eu

version=1.6.32
sum=4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && npm pack --silent "uplot@$version" >/dev/null)
if ! printf '%s  %s\n' "$sum" "$work/uplot-$version.tgz" | sha256sum --check --status; then
    echo "uplot-$version.tgz is not the package that this script knows; nothing was changed" >&2
    exit 1
fi
tar -xzf "$work/uplot-$version.tgz" -C "$work"
mkdir -p "$here/vendor"
# The package's files end without a line end.
for file in dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE; do
    { cat "$work/package/$file"; echo; } >"$here/vendor/$(basename "$file")"
done
mv "$here/vendor/LICENSE" "$here/vendor/uPlot.LICENSE"
echo "dashboard/vendor holds uPlot $version"
