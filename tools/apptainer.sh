#!/usr/bin/env bash
# The real Apptainer for the tests of `container:`, on a Debian or Ubuntu that has no package of it: tools/apptainer.sh FOLDER
# Debian's package of a later release, with the libraries that it needs, in a folder of its own; nothing is installed.
set -euo pipefail
target=$(realpath -m "${1:?which folder?}")
suite=${SUITE:-sid}
key=/usr/share/keyrings/debian-archive-keyring.gpg

[ -x "$target/usr/bin/apptainer" ] && exit 0
command -v patchelf >/dev/null || { echo "missing: patchelf (apt-get install patchelf)" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "missing: apt-get; install Apptainer by your own means, on the PATH" >&2; exit 1; }
# Where this machine has its packages from.
mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Identifier: Packages' |
    awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
[ -n "$mirror" ] || { echo "no archive of Debian among the sources of apt" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
echo "deb [signed-by=$key] $mirror $suite main" >"$work/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
CONF
export APT_CONFIG="$work/apt.conf"
apt-get update -qq
(cd "$work/debs" && apt-get download -qq apptainer libc6 libseccomp2 libsqlite3-0)
for package in "$work"/debs/*.deb; do
    dpkg-deb --extract "$package" "$work/tree"
done

# It finds its files beside itself, as long as they lie below one folder.
here=$work/tree/usr
libraries=$target/usr/lib/x86_64-linux-gnu
mv "$work/tree/etc" "$here/etc"
ln -s ../etc "$here/lib/etc"
mkdir -p "$here/lib/var/lib/apptainer/mnt/session" "$here/var/lib/apptainer/mnt/session"
rm -rf "$here/share"
for program in bin/apptainer lib/x86_64-linux-gnu/apptainer/bin/starter; do
    patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$here/$program"
done
# Root in a container or a small machine may lack some capability, and Apptainer would ask for all of them.
sed -i 's/^root default capabilities = .*/root default capabilities = no/' "$here/etc/apptainer/apptainer.conf"
mkdir -p "$(dirname "$target")"
mv "$work/tree" "$target"
"$target/usr/bin/apptainer" --version
