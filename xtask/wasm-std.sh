#!/usr/bin/env bash
# Builds the Rust standard library for WebAssembly targets from Debian's packages and puts it
# where `rustup target add` would. For machines that have a Debian mirror but not rustup's server;
# `cargo xtask guests` runs it only after rustup has failed.
#
# usage: wasm-std.sh TARGET…     (wasm32-wasip1, wasm32-wasip2)
#
# Takes `rust-src` of the very version of the rustc in use, and `wasi-libc`, through apt with
# apt's signature checks, into a temporary folder: nothing is installed on the system, and root is
# needed only where the toolchain's own folder is root's.
set -euo pipefail

rustc=${RUSTC:-rustc}
die() { echo "wasm-std: $*" >&2; exit 1; }

[ $# -gt 0 ] || die "name a target, such as wasm32-wasip2"
for tool in apt-get apt-cache dpkg-deb cargo "$rustc"; do
  command -v "$tool" >/dev/null || die "needs $tool, which this machine lacks (is it Debian?)"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || keyring=${keyring%.gpg}.pgp
[ -e "$keyring" ] || die "no Debian archive key on this machine; install debian-archive-keyring"

version=$("$rustc" --version | awk '{ print $2 }')
rustlib=$("$rustc" --print sysroot)/lib/rustlib
[ -w "$rustlib" ] || die "cannot write to $rustlib; run as its owner"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The mirror this machine already uses, in either format of apt's sources.
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
  sed 's/#.*//' | grep -oE 'https?://[^ ]*/debian/?( |$)' | awk '!n++ { print $1 }')
[ -n "$mirror" ] || die "no Debian mirror in /etc/apt/sources.list or sources.list.d"

mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
for suite in trixie trixie-backports forky sid; do
  echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$work/sources.list"
apt=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=")
echo "wasm-std: looking for rust-src $version" >&2
apt-get "${apt[@]}" -qq update || die "apt cannot read the mirror's package lists"

newest() {
  apt-cache "${apt[@]}" madison "$1" | awk '{ print $3 }' | grep -E "$2" | sort -V | tail -n 1
}
src=$(newest rust-src "^${version//./\\.}\\+" || true)
libc=$(newest wasi-libc . || true)
[ -n "$src" ] || die "Debian has no rust-src $version; use a rustc that it has, or rustup's server"
[ -n "$libc" ] || die "Debian's mirror has no wasi-libc"
(cd "$work" && apt-get "${apt[@]}" -qq download "rust-src=$src" "wasi-libc=$libc") ||
  die "cannot download rust-src and wasi-libc"
dpkg-deb -x "$work"/rust-src_*.deb "$work/src"
dpkg-deb -x "$work"/wasi-libc_*.deb "$work/libc"
library=$(echo "$work"/src/usr/src/rustc-*/library)

for target in "$@"; do
  [ -d "$work/libc/usr/lib/$target" ] || die "Debian's wasi-libc has nothing for $target"
  echo "wasm-std: building std $version for $target" >&2
  # The flags rustup's own builds have: bitcode for link-time optimisation, and std's unstable
  # features allowed. `unset` because the caller's flags are meant for the caller's crates.
  (
    cd "$library"
    unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR RUSTC_WRAPPER
    __CARGO_DEFAULT_LIB_METADATA="$target-std" RUSTC_BOOTSTRAP=1 \
      RUSTFLAGS="-L native=$work/libc/usr/lib/$target -Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
      cargo build --quiet --release --target "$target" --manifest-path sysroot/Cargo.toml \
      --target-dir "$work/build" --features "panic-unwind backtrace" \
      --config 'profile.release.panic="abort"'
  ) >"$work/log" 2>&1 || { cat "$work/log" >&2; die "std $version does not build for $target"; }

  # Complete beside its place, then moved there: whatever an older rustc left goes away with it.
  new=$rustlib/$target/lib.new
  rm -rf "$new"
  mkdir -p "$new/self-contained"
  cp "$work/build/$target/release/deps/"*.rlib "$new/"
  cp "$work/libc/usr/lib/$target/"{crt1-command.o,crt1-reactor.o,libc.a} "$new/self-contained/"
  rm -rf "$rustlib/$target/lib"
  mv "$new" "$rustlib/$target/lib"
  echo "wasm-std: installed $target" >&2
done
