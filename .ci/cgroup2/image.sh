# Makes what the guest boots, in $cache: Debian's cloud kernel, unpacked and not
# installed; an initramfs that finds the disk; a disk with the parts of this
# machine's Debian that sandboxes show as /usr, and with skillrun.
# For run.sh, which sets $here and $cache.
# shellcheck shell=bash

# What the guest has, with everything that these depend on.
guest_packages=(
	base-files bash coreutils dash findutils grep hostname libc-bin mawk mount nodejs perl-base procps
	python3 sed tzdata util-linux
)

# In the order in which they load.
modules=(
	drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev
	drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci drivers/block/virtio_blk
	fs/overlayfs/overlay
)

# Sets $kernel and $modules_dir. Only the first run, or one that finds its cache
# cleaned, asks the archive.
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

# The package that the metapackage stands for today.
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
	copy_packages "$tree"
	rm -rf "$tree/opt/skillrun"
	mkdir -p "$tree/opt/skillrun/src"
	cp -r bin skills "$here"/{guest,smoke,daemon}.sh "$cache/sandbox.test" "$tree/opt/skillrun/"
	# Tests run in the directory of their sources.
	cp -r sandbox "$tree/opt/skillrun/src/"
	rm -f "$image"
	truncate --size=2G "$image"
	mkfs.ext4 -q -d "$tree" -E lazy_itable_init=1,lazy_journal_init=1 "$image"
}

# Copies the files of guest_packages to $1, unless they are there in the
# versions that this machine has.
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
	mkdir -p "$tree"/{dev,etc,home,opt,proc,root,run,sys,tmp,usr/{bin,lib,lib64,sbin},var/{lib,tmp}}
	chmod 1777 "$tree/tmp" "$tree/var/tmp"
	ln -s usr/bin usr/lib usr/lib64 usr/sbin "$tree"
	# Directories come with what is in them; npm and what
	# documents is not needed.
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
	echo 'root:x:0:0:root:/root:/bin/bash' >"$tree/etc/passwd"
	echo 'root:x:0:' >"$tree/etc/group"
	echo '127.0.0.1 localhost' >"$tree/etc/hosts"
	echo 'nameserver 127.0.0.1' >"$tree/etc/resolv.conf"
	ldconfig -r "$tree"
	echo "$versions" >"$tree.versions"
}

# The packages that are named and all that they depend on, of alternatives
# those that are installed.
installed_closure() {
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
		--no-enhances "$@" | grep -E '^[a-z0-9]' | sort -u |
		xargs dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" {print $2}'
}
