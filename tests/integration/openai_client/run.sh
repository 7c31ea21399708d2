#!/usr/bin/env bash
# run.sh SOURCE_FOLDER WORK_FOLDER TURBO: install the client, start a server on a free port, run run.mjs against it.
# Exit code 77 (skipped) when npm or the registry is not there.
set -euo pipefail
source_folder="$1" work="$2" turbo="$3"
command -v npm >/dev/null && command -v node >/dev/null || { echo "npm and node are needed"; exit 77; }
mkdir -p "$work"
cp "$source_folder/package.json" "$source_folder/run.mjs" "$work/"
cd "$work"
if [ ! -d node_modules/openai ]; then
  npm install --no-audit --no-fund --loglevel=error || { echo "cannot install the client"; exit 77; }
fi

"$turbo" serve --profile default --set server.port=0 2>server.log &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}
trap stop EXIT
url=""
for _ in $(seq 600); do
  url="$(sed -n 's|.*listening on \(http://[0-9.:]*\).*|\1|p' server.log | head -n 1)"
  [ -n "$url" ] && break
  kill -0 "$server" 2>/dev/null || { cat server.log; exit 1; }
  sleep 0.2
done
[ -n "$url" ] || { echo "the server did not come up"; cat server.log; exit 1; }
node run.mjs "$url" || { cat server.log; exit 1; }

# A clean stop ends with exit code 0.
trap - EXIT
kill -TERM "$server"
wait "$server" || { echo "the server did not stop cleanly"; cat server.log; exit 1; }
