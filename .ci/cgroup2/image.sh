# Makes the guest's files in $cache: Debian's cloud kernel, unpacked but not installed;
# an initramfs that finds the disk; a disk with skillrun and with the parts of this
# machine's Debian that sandboxes show as /usr.
# For run.sh, which sets $here, $cache and $form.
# shellcheck shell=bash

# The guest's packages, without their dependencies (see installed_closure).
guest_packages=(
	base-files bash coreutils dash e2fsprogs findutils grep hostname libc-bin libcap2-bin mawk mount nodejs
	perl-base procps python3 sed tzdata util-linux
)
if [[ $form == systemd ]]; then
	guest_packages+=(systemd)
fi

# The kernel's modules, in the order in which the guest loads them.
modules=(
	drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev
	drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci drivers/block/virtio_blk
	drivers/block/loop fs/overlayfs/overlay net/ipv4/inet_diag net/ipv4/tcp_diag net/ipv4/udp_diag
	drivers/net/tun drivers/net/veth
)

# Sets $kernel and $modules_dir. Downloads the kernel only if the cache lacks it.
find_kernel() {
	local dir
	dir=$(find "$cache" -mindepth 1 -maxdepth 1 -type d -name 'linux-*' | sort -V | tail -n 1)
	if [[ -z $dir ]]; then
		dir=$(download_kernel)
	fi
	kernel=$(echo "$dir"/boot/vmlinuz-*)
	modules_dir=$(echo "$dir"/lib/modules/*/kernel)
}

download_kernel() {
	local package unpacked=$cache/unpacked
	kernel_package >/dev/null || apt-get update -qq >&2
	if ! package=$(kernel_package); then
		echo "the archive has no linux-image-cloud-amd64: this needs Debian on amd64" >&2
		return 1
	fi
	echo "==> kernel $package" >&2
	rm -rf "$unpacked"
	mkdir "$unpacked"
	# apt's own user can't write here; the warning about that is noise.
	(cd "$unpacked" && apt-get -o APT::Sandbox::User=root download -qq "$package" >&2)
	dpkg-deb --extract "$unpacked"/*.deb "$unpacked"
	rm "$unpacked"/*.deb
	mv "$unpacked" "$cache/$package"
	echo "$cache/$package"
}

# The package that the metapackage depends on today.
kernel_package() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2; found = 1} END {exit !found}'
}

# Sets $initramfs.
make_initramfs() {
	local tree=$cache/initramfs.tree module
	initramfs=$cache/initramfs
	rm -rf "$tree"
	mkdir -p "$tree"/{bin,dev,modules,newroot,proc}
	cp /bin/busybox "$tree/bin/"
	ln -s busybox "$tree/bin/sh"
	for module in "${modules[@]}"; do
		cp "$modules_dir/$module.ko" "$tree/modules/"
		echo "${module##*/}"
	done >"$tree/modules/order"
	install -m 0755 "$here/initramfs.sh" "$tree/init"
	(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) >"$initramfs"
}

# Sets $image.
make_image() {
	local tree=$cache/root.tree
	image=$cache/disk
	if [[ $form == systemd ]]; then
		tree=$cache/systemd.tree
	fi
	copy_packages "$tree"
	local to=$tree/opt/skillrun
	rm -rf "$to"
	mkdir -p "$to"/{bin,built,faulty,src/cmd/skillrund}
	if [[ $form == systemd ]]; then
		install_service "$tree"
	else
		add_tests "$to"
	fi
	cp "$here"/*.sh "$to/"
	printf '%s=%q\n' form "$form" run "$run" flags "$flags" seconds "$((limit - 10))" >"$to/settings"
	rm -f "$image"
	truncate --size=2G "$image"
	mkfs.ext4 -q -d "$tree" -E lazy_itable_init=1,lazy_journal_init=1 "$image"
}

# Installs the daemon in $1 as docs/operating.md says, and the unit that runs systemd.sh.
install_service() {
	local tree=$1
	install -Dm 0755 bin/skillrund bin/skillrun bin/skillrun-network -t "$tree/usr/bin/"
	install -Dm 0644 deploy/skillrund.service deploy/skillrund.socket -t "$tree/etc/systemd/system/"
	install -Dm 0644 deploy/skillrund.sysusers "$tree/usr/lib/sysusers.d/skillrun.conf"
	install -Dm 0644 deploy/skillrund.yaml -t "$tree/etc/skillrun/"
	install -Dm 0644 "$here/checks.service" -t "$tree/etc/systemd/system/"
	rm -rf "$tree/opt/skills"
	mkdir -p "$tree/opt/skills"
	cp -r skills/calculator "$tree/opt/skills/"
	: >"$tree/etc/machine-id" # systemd makes one
}

# Adds the tests and their files to the directory $1.
add_tests() {
	local to=$1
	cp bin/skillrund bin/skillrun bin/skillrun-network "$to/bin/"
	cp "$cache"/{sandbox,cgroup,mount,preflight,pyzygote,network,gateway,helper,skillrund}.test "$to/"
	cp "$cache"/faulty/{skillrund,skillrun-network,sandbox.test} "$to/faulty/"
	# Unpacking it would take minutes in emulation.
	printf '#!/bin/sh\necho "left out of this image" >&2\nexit 1\n' >"$to/bin/skillrun-python"
	chmod 755 "$to/bin/skillrun-python"
	cp -r "$cache/initramfs.tree/modules" "$to/"
	# Tests run in the directory of their sources. One skill is enough: each start of a
	# daemon imports all.
	cp -r sandbox "$to/src/"
	mkdir "$to/src/internal"
	cp -r internal/network "$to/src/internal/"
	cp -r cmd/skillrund/testdata "$to/src/cmd/skillrund/"
	mkdir "$to/src/skills"
	cp -r skills/calculator "$to/src/skills/"
	ln -s src/skills "$to/skills"
	build_attacks "$to/built"
}

# Compiles the attacks that are in C, into $1. Other machines compile them in the
# sandbox.
build_attacks() {
	local source
	for source in cmd/skillrund/testdata/hostile/{own,machine}/*.c; do
		gcc -O1 -static -o "$1/$(basename "$source" .c)" "$source"
	done
}

# Copies the files of guest_packages to $1, unless $1 has this machine's versions
# already.
copy_packages() {
	local tree=$1 packages versions
	mapfile -t packages < <(installed_closure "${guest_packages[@]}")
	if ((${#packages[@]} < ${#guest_packages[@]})); then
		echo "not all installed: ${guest_packages[*]}" >&2
		return 1
	fi
	versions=$(dpkg-query -W "${packages[@]}" && cat "${BASH_SOURCE[0]}")
	if [[ -f $tree.versions && $versions == "$(<"$tree.versions")" ]]; then
		return
	fi
	echo "==> root file system of ${#packages[@]} packages"
	rm -rf "$tree" "$tree.versions"
	mkdir -p "$tree"/{dev,etc,home,mnt,opt,proc,root,run,sys,tmp,usr/{bin,lib,lib64,sbin},var/{lib/dpkg,tmp}}
	chmod 1777 "$tree/tmp" "$tree/var/tmp"
	ln -s usr/bin usr/lib usr/lib64 usr/sbin "$tree"
	# A listed directory is copied without its other content; npm and documentation
	# are left out.
	{
		dpkg-query -L "${packages[@]}" | grep -vE '^/usr/(include|lib/node_modules|share/(doc|info|locale|man))/'
		find /usr/bin -lname '/etc/alternatives/*'
	} | sort -u | while read -r path; do
		if [[ -L $path || -f $path ]]; then
			echo "${path#/}"
		fi
	done | tar -C / -c --no-recursion -T - | tar -C "$tree" -x --keep-directory-symlink
	cp -a /etc/alternatives "$tree/etc/"
	cp -a /etc/localtime "$tree/etc/" 2>/dev/null || true
	printf '%s\n' root:x:0:0:root:/root:/bin/bash daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin \
		nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin >"$tree/etc/passwd"
	printf '%s\n' root:x:0: daemon:x:1: nogroup:x:65534: >"$tree/etc/group"
	echo 'root:!no-password-in-this-image:20000:0:99999:7:::' >"$tree/etc/shadow"
	chmod 600 "$tree/etc/shadow"
	echo '127.0.0.1 localhost' >"$tree/etc/hosts"
	echo 'nameserver 127.0.0.1' >"$tree/etc/resolv.conf"
	# As the packages' scripts do; else each Python would compile its imports again.
	find "$tree/usr/lib" -maxdepth 1 -name 'python3.*' -exec \
		/usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$tree" {} +
	ldconfig -r "$tree"
	echo "$versions" >"$tree.versions"
}

# Prints the named packages and their dependencies; of alternatives, the installed
# ones.
installed_closure() {
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
		--no-enhances "$@" | grep -E '^[a-z0-9]' | sort -u |
		xargs dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" {print $2}'
}
