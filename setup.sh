#!/usr/bin/env bash
# One command from a clone to a running turbo, on Debian 12 or a system like it.
#
#   ./setup.sh run [-- ARGS]   install what is missing, build, start the server on the bundled model
#                              (with ARGS: run `turbo ARGS` instead)
#   ./setup.sh test [full]     install, build, run the tests (fast tier, or everything)
#   ./setup.sh build           install, build; leaves build/release/bin/turbo
#   ./setup.sh clean           remove build/
#
# The device compiler of the hip tier (about 400 MB) is installed by `test`, and by `run` and `build` where there is an AMD
# GPU; TURBO_HIP=1 installs it anywhere, TURBO_HIP=0 nowhere. Without it that tier is left out and the rest is built.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

packages=(
  g++ cmake ninja-build pkg-config ccache mold
  libboost-dev libboost-filesystem-dev libboost-program-options-dev libboost-system-dev libboost-context-dev
  libyaml-cpp-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libutf8proc-dev libpcre2-dev libedit-dev
  prometheus-cpp-dev libgtest-dev libgmock-dev libssl-dev
)
test_packages=(python3 python3-numpy curl qemu-user)  # numpy: the interpreter of GPU code
hip_packages=(clang-19 lld-19 llvm-19 rocm-device-libs libamdhip64-dev)
full_packages=(nodejs npm clang libclang-rt-dev)

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'setup.sh: %s\n' "$1" >&2; [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2; exit 1; }

install_missing() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  # A node that did not come as a package serves as well.
  if command -v node >/dev/null && command -v npm >/dev/null; then
    missing=($(printf '%s\n' "${missing[@]:-}" | grep -vxE 'nodejs|npm' || true))
  fi
  command -v python3 >/dev/null && missing=($(printf '%s\n' "${missing[@]:-}" | grep -vx 'python3' || true))
  [ "${#missing[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing packages: ${missing[*]}" "install them with your package manager, then run this again"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "missing packages: ${missing[*]}" "run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
    die "the package manager failed" "see its message above"
}

amd_gpu() {
  local vendor
  [ ! -e /dev/kfd ] || return 0
  for vendor in /sys/class/drm/card*/device/vendor; do
    [ ! -r "$vendor" ] || [ "$(cat "$vendor")" != 0x1002 ] || return 0
  done
  return 1
}

# install_hip WANTED: never a reason to stop, for the build does without.
install_hip() {
  [ "${TURBO_HIP:-$1}" = 1 ] || return 0
  (install_missing "${hip_packages[@]}") || say "no device compiler: the hip tier is left out"
}

build() {
  local targets=("$@")
  say "building (preset release)"
  cmake --preset release -DTURBO_BUILD_TESTS="${TESTS:-OFF}" >build-configure.log 2>&1 ||
    { cat build-configure.log >&2; rm -f build-configure.log; die "configuring failed" "see the message above"; }
  rm -f build-configure.log
  cmake --build --preset release "${targets[@]}" >&2
}

case "${1:-}" in
  run)
    shift; [ "${1:-}" != "--" ] || shift
    install_missing "${packages[@]}"
    if amd_gpu; then install_hip 1; else install_hip 0; fi
    build
    if [ "$#" -gt 0 ]; then exec build/release/bin/turbo "$@"; fi
    exec build/release/bin/turbo serve --profile default
    ;;
  build)
    install_missing "${packages[@]}"
    if amd_gpu; then install_hip 1; else install_hip 0; fi
    build
    say "built build/release/bin/turbo; try: build/release/bin/turbo run --prompt 'The git commit command'"
    ;;
  test)
    tier="${2:-fast}"
    install_missing "${packages[@]}" "${test_packages[@]}"
    [ "$tier" != full ] || install_missing "${full_packages[@]}"
    install_hip 1
    TESTS=ON build
    label=(-L fast); [ "$tier" != full ] || label=()
    ctest --preset release "${label[@]}" -j "$(nproc)"
    ;;
  clean)
    rm -rf build
    ;;
  *)
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
