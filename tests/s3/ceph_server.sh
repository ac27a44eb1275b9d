#!/usr/bin/env bash
# Ceph's object gateway over a cluster of one node in memory: ceph_server.sh FOLDER PORT FILE. Debian's packages are
# downloaded and unpacked in FOLDER, not installed. Makes a user and the bucket "models"; writes AWS_* variables for a
# shell to FILE, and the ids of its processes to FOLDER/run/*.pid.
set -euo pipefail
folder=$(mkdir -p "$1" && realpath "$1") port=$2 file=$3
root=$folder/root run=$folder/run
if [ ! -x "$root/usr/bin/radosgw" ]; then
  mkdir -p "$folder/debs"
  (cd "$folder/debs" && apt-get install -s --no-install-recommends radosgw ceph-mon ceph-osd |
    awk '/^Inst/ {print $2}' | xargs apt-get download -q)
  for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$root"; done
fi
# The path may be longer than the name of a socket can be.
sockets=$(mktemp -d)
triple=$(uname -m)-linux-gnu
lib=$root/usr/lib/$triple
export LD_LIBRARY_PATH=$root/lib/$triple:$lib:$lib/ceph CEPH_CONF=$run/ceph.conf
export PYTHONPATH=$root/usr/lib/python3/dist-packages
rm -rf "$run" && mkdir -p "$run"/{osd,rgw}
id=$(cat /proc/sys/kernel/random/uuid) osd=$(cat /proc/sys/kernel/random/uuid)
monitor="[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]"
cat > "$run/ceph.conf" <<CONFIG
[global]
fsid = $id
mon host = $monitor
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $run/keyring
osd objectstore = memstore
memstore device bytes = 4294967296
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data = $run/mon
mon cluster log file = $run/cluster.log
osd data = $run/osd
admin socket = $sockets/\$name.asok
log file = $run/\$name.log
pid file = $run/\$name.pid
plugin dir = $lib/ceph
erasure code dir = $lib/ceph/erasure-code
osd class dir = $lib/rados-classes
rgw data = $run/rgw
rgw frontends = beast endpoint=127.0.0.1:$port
rgw thread pool size = 16
CONFIG
at() { local name=$1; shift; timeout 60 "$root/usr/bin/$name" "$@"; }
{
  at monmaptool --create --fsid "$id" --addv a "$monitor" "$run/monmap"
  at ceph-authtool --create-keyring "$run/keyring" --gen-key -n mon. --cap mon 'allow *'
  at ceph-authtool "$run/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
  at ceph-authtool "$run/keyring" --gen-key -n client.rgw --cap mon 'allow *' --cap osd 'allow *'
  at ceph-mon --mkfs -i a --monmap "$run/monmap" --keyring "$run/keyring"
  at ceph-mon -i a
  at ceph osd new "$osd" 0
  at ceph-authtool "$run/keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
  at ceph auth add osd.0 -i "$run/keyring"
  at ceph-osd -i 0 --mkfs --osd-uuid "$osd"
  at ceph osd crush add osd.0 1.0 root=default host=one
  at ceph-osd -i 0
  at radosgw -n client.rgw
  for _ in $(seq 200); do curl -s -o "$run/answer" "http://127.0.0.1:$port/" && break; sleep 0.2; done
  at radosgw-admin user create -n client.rgw --uid=run --display-name=run --access-key=CEPHKEY --secret=ceph-secret
} > "$run/start.log" 2>&1 || { tail -n 20 "$run/start.log" >&2; exit 1; }
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
curl -sSf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u CEPHKEY:ceph-secret -H "x-amz-content-sha256: $empty" \
  "http://127.0.0.1:$port/models"
echo "export AWS_ACCESS_KEY_ID=CEPHKEY AWS_SECRET_ACCESS_KEY=ceph-secret" > "$file.new"
echo "export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port AWS_REGION=us-east-1" >> "$file.new"
mv "$file.new" "$file"
