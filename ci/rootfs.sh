# Sourced by scripts that make an image from nothing: packages are unpacked, never installed. Needs $state, apt and x86-64.
# shellcheck shell=bash disable=SC2154
# No step may hang a build, such as an index that does not answer.
step=(timeout --kill-after=10 300)

# rootfs <context>: lay out <context>/rootfs with a shell and the C library of this machine, anew.
rootfs() {
    local library tool root=$1/rootfs
    rm -rf "$1"
    mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,lib64,lib/x86_64-linux-gnu}
    chmod 1777 "$root/tmp"
    (cd "$1" && fetch busybox-static && dpkg-deb -x busybox-static_*.deb deb) || return 1
    cp "$1/deb/bin/busybox" "$root/bin/" || return 1
    for tool in sh env awk cat grep nc ps wget; do
        ln -s busybox "$root/bin/$tool"
    done
    echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
    echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
    for library in libc libm libdl libpthread librt libresolv; do
        cp -L /lib/x86_64-linux-gnu/$library.so.? "$root/lib/x86_64-linux-gnu/" || return 1
    done
    cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
}

# fetch <package>: download it into this folder, with newer lists if it must be.
fetch() {
    quietly packages "${step[@]}" apt-get -qq -o APT::Sandbox::User=root download "$1" || {
        quietly packages "${step[@]}" apt-get update -qq
        quietly packages "${step[@]}" apt-get -qq -o APT::Sandbox::User=root download "$1"
    }
}

# quietly <name> <command ...>: its output goes into a file, which is shown only if it fails.
quietly() {
    local log=$state/$1.log
    shift
    "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
}
