# Installs the Debian packages that are missing; sourced by ./run and ./test.
# setup <package>...: needs root or sudo only when something is missing.
setup() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "Installing: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "These packages are missing and need root to install: ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(g++ cmake ninja-build ccache mold pkg-config libhwy-dev nlohmann-json3-dev libcli11-dev
  libfmt-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libcurl4-openssl-dev libssl-dev
  libboost-dev ca-certificates)
test_packages=(libgtest-dev python3 python3-dev python3-numpy python3-pytest python3-hypothesis pybind11-dev
  clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 git libboost-context-dev)

# quietly <log> <command>...: runs it, shows its output only when it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    echo "failed: $*" >&2
    exit 1
  }
}

# virtual_environment <folder> <requirements> [option of venv]: a virtual environment with what a file of
# requirements lists, made anew when the list has changed.
virtual_environment() {
  local folder=$1 wanted=$2
  cmp -s "$wanted" "$folder/requirements.txt" && return
  rm -rf "$folder"
  /usr/bin/python3 -m venv "${@:3}" "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" || {
    echo "cannot install what $wanted lists; is Python's package index in reach?" >&2
    return 1
  }
  cp "$wanted" "$folder/requirements.txt" # last: it says that the rest is complete
}
