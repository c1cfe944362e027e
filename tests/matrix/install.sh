# Makes the environment of Python in a root: install.sh ROOT ENVIRONMENT [VARIABLE=VALUE...]
# In namespaces of its own: nothing stays mounted.
root=$1 environment=$2
shift 2
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
for file in resolv.conf hosts; do
    touch "$root/etc/$file"
    mount --bind "/etc/$file" "$root/etc/$file"
done
# Who signs for the package index here may be unknown elsewhere.
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    mount --bind /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@" bash -eu -c '
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r /root/uv.txt
VIRTUAL_ENV=$1 "$1/bin/uv" pip install --quiet --no-cache --require-hashes -r /root/dev.txt
ours=$("$1/bin/python" -c "import sysconfig; print(sysconfig.get_path(\"platlib\"))")
ln -sf /usr/lib/python3/dist-packages/libvirt*.py /usr/lib/python3/dist-packages/libvirtmod*.so "$ours/"
echo /springtide/src >"$ours/springtide.pth"
' install "$environment"
