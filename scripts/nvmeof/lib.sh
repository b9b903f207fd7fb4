# Shared by the scripts beside it; sourced, not run. Each of them runs itself in the guest:
#
#	. "$(dirname "$0")/lib.sh"
#	in_guest "$@"           # from here on: in the guest, as root, the programs of cmd/ in $bin
#	device "$1"             # sets dev and addr
#	null_blk nullb0 256     # sets backing
#	target_up kernel "$backing"
#	host_connect kernel     # sets disk[kernel] and ctrl[kernel]
#	...
#	finish
#
# A step that fails is reported and the script goes on, so that one run tells all; the exit status is 1 then.

# shellcheck shell=bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
name=$(basename "$0")
scratch=$(mktemp -d)

say() { echo "$name: $*" >&2; }
die() {
	say "$*"
	exit 1
}

# show_usage prints the comment at the head of the script, without its first line.
show_usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# in_guest ARGUMENT... builds the programs and runs the script again, in the guest. There it returns at once. Tags for the build
# are read from NVMEOF_TAGS. With tests=1 before it, the tests of the libraries are built, too.
in_guest() {
	case ${1-} in
	-h | -help | --help) show_usage && exit 0 ;;
	esac
	trap 'rm -rf "$scratch"' EXIT
	if [[ ${RDMARW_GUEST-} == 1 && -n ${NVMEOF_BIN-} ]]; then
		bin=$NVMEOF_BIN
		return 0
	fi
	export NVMEOF_BIN=$scratch
	build
	local status=0
	"$top/scripts/guest" "$0" "$@" || status=$?
	exit "$status"
}

build() (
	cd "$top"
	local tags="ibverbs${NVMEOF_TAGS:+,$NVMEOF_TAGS}"
	go build -tags "$tags" -o "$NVMEOF_BIN/" ./cmd/nvmeof-target ./cmd/nvmeof-host ./scripts/nvmeof/internal/ratios
	[[ -z ${tests-} ]] || go test -c -tags "$tags" -o "$NVMEOF_BIN/" ./ulp/nvmeof/host ./ulp/nvmeof/target
)

# device NAME sets dev and addr.
device() {
	dev=${1-}
	case $dev in
	rxe0) addr=$RDMARW_RXE0_ADDR ;;
	siw0) addr=$RDMARW_SIW0_ADDR ;;
	*) die "which device, rxe0 or siw0? (-h for help)" ;;
	esac
}

# ---- steps -----------------------------------------------------------------------------------------------------------

failed=0
pass() { printf 'PASS  %s\n' "$*"; }
fail() {
	printf 'FAIL  %s\n' "$*"
	failed=$((failed + 1))
}

# check WHAT COMMAND... reports whether a quiet command succeeds.
check() {
	local what=$1
	shift
	if "$@" >/dev/null 2>&1; then pass "$what"; else fail "not so: $what"; fi
}

# step WHAT COMMAND... runs a command; what it prints is shown only if it fails. must does the same, and ends the script then:
# for what the rest depends on.
must() {
	local before=$failed
	step "$@"
	[[ $failed == "$before" ]] || finish
}
step() {
	local what=$1 out=$scratch/step status=0 begun=$EPOCHREALTIME
	shift
	"$@" >"$out" 2>&1 || status=$?
	if [[ $status == 0 ]]; then
		pass "$what ($(since "$begun") s)"
	else
		fail "$what: status $status of: $*"
		sed 's/^/      /' "$out" | tail -n 40
	fi
	return 0
}

# since TIME is how many seconds ago that was, with two decimals.
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.2f", b - a}'; }

# finish ends the script.
finish() {
	if [[ $failed -gt 0 ]]; then
		echo "$name: $failed steps failed"
		exit 1
	fi
	echo "$name: all passed"
	exit 0
}

# ---- backing ---------------------------------------------------------------------------------------------------------

# null_blk NAME MIB makes /dev/NAME, a block device in memory, and sets backing to it.
null_blk() {
	local c=/sys/kernel/config/nullb/$1
	modprobe null_blk nr_devices=0
	mkdir -p "$c"
	[[ $(<"$c/power") == 0 ]] || echo 0 >"$c/power"
	echo "$2" >"$c/size"
	echo 1 >"$c/memory_backed"
	echo 0 >"$c/irqmode"
	echo 512 >"$c/blocksize"
	echo 1 >"$c/power"
	backing=/dev/$1
	await "no $backing" test -b "$backing"
}

# ---- targets ---------------------------------------------------------------------------------------------------------

# Two targets can be up at a time, the kernel's (kernel) and ours (nvmeof-target), each with its own name, port and serial number.
declare -A nqn=([kernel]=nqn.2026-11.rdmarw:kernel [ours]=nqn.2026-11.rdmarw:ours)
declare -A port=([kernel]=4420 [ours]=4421)
declare -A serial=([kernel]=rdmarw-kernel [ours]=rdmarw-ours)
metrics_port=9420
nvmet=/sys/kernel/config/nvmet
target_pid=

# target_up KIND BACKING serves BACKING, a block device (or for ours, what its -ns takes), on $addr.
target_up() { "$1_up" "$2"; }
target_down() { "$1_down"; }

kernel_up() {
	modprobe -a nvmet nvmet-rdma
	local s=$nvmet/subsystems/${nqn[kernel]} p=$nvmet/ports/1
	mkdir -p "$s/namespaces/1" "$p"
	echo 1 >"$s/attr_allow_any_host"
	echo "${serial[kernel]}" >"$s/attr_serial"
	echo -n "$1" >"$s/namespaces/1/device_path"
	echo 1 >"$s/namespaces/1/enable"
	echo rdma >"$p/addr_trtype"
	echo ipv4 >"$p/addr_adrfam"
	echo "$addr" >"$p/addr_traddr"
	echo "${port[kernel]}" >"$p/addr_trsvcid"
	ln -s "$s" "$p/subsystems/${nqn[kernel]}"
}

kernel_down() {
	local s=$nvmet/subsystems/${nqn[kernel]} p=$nvmet/ports/1
	rm -f "$p/subsystems/${nqn[kernel]}"
	rmdir "$p"
	echo 0 >"$s/namespaces/1/enable"
	rmdir "$s/namespaces/1" "$s"
}

# ours_options are more of nvmeof-target's; ours_cpus are those that it may run on, as taskset(1) takes them. Empty: all.
ours_options=(-v)
ours_cpus=

# ours_log is what nvmeof-target has said.
ours_log=$scratch/target.log

ours_up() {
	${ours_cpus:+taskset -c "$ours_cpus"} "$bin/nvmeof-target" -a "$addr:${port[ours]}" -d "$dev" -nqn "${nqn[ours]}" -serial "${serial[ours]}" -ns "$1" \
		-http "127.0.0.1:$metrics_port" "${ours_options[@]}" >>"$ours_log" 2>&1 &
	target_pid=$!
	await "nvmeof-target isn't up" ours_is_up || {
		cat "$ours_log" >&2
		return 1
	}
}

ours_is_up() { grep -qs "listening on" "$ours_log" && metrics >/dev/null 2>&1; }

# ours_down ends it by SIGTERM, and fails if it didn't end well.
ours_down() {
	local pid=$target_pid status=0
	[[ -n $pid ]] || return 0
	target_pid=
	kill "$pid"
	wait "$pid" || status=$?
	[[ $status == 0 ]] || {
		echo "nvmeof-target ended with status $status"
		tail -n 20 "$ours_log"
	}
	: >"$ours_log"
	return "$status"
}

# metrics prints nvmeof-target's statistics; metric NAME the sum of one.
metrics() {
	exec 9<>/dev/tcp/127.0.0.1/$metrics_port || return 1
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&9
	cat <&9
	exec 9<&-
}
metric() { metrics | awk -v name="nvmeof_target_$1" '{n = $1; sub(/[{].*/, "", n)} n == name {sum += $2} END {print sum + 0}'; }

# ---- the kernel's host -----------------------------------------------------------------------------------------------

declare -A disk=() ctrl=() # by kind of target, set by host_connect
hostnqn=nqn.2014-08.org.nvmexpress:uuid:6d2f2c3e-5f0a-4c58-9a37-0d7f3c1b9a01
hostid=6d2f2c3e-5f0a-4c58-9a37-0d7f3c1b9a01

# where KIND sets the array at to how a target is named to nvme-cli.
where() { at=(-t rdma -a "$addr" -s "${port[$1]}" "--hostnqn=$hostnqn" "--hostid=$hostid"); }

# host_connect KIND [OPTION...] connects the kernel's host with 2 I/O queues of 32, and sets disk and ctrl of that kind.
host_connect() {
	local kind=$1 at
	shift
	modprobe nvme-rdma
	where "$kind"
	nvme connect "${at[@]}" -n "${nqn[$kind]}" --nr-io-queues=2 --queue-size=32 "$@"
	find_disk "$kind"
}

host_disconnect() { nvme disconnect -n "${nqn[$1]}"; }

# find_disk KIND waits for the block device of a target's serial number, and its controller: nobody promises a number.
find_disk() { await "no block device of serial number ${serial[$1]}" disk_is_there "$1"; }

disk_is_there() {
	local b
	for b in /sys/block/nvme*; do
		if [[ -e $b/device/serial && $(tr -d ' ' <"$b/device/serial") == "${serial[$1]}" && -b /dev/$(basename "$b") ]]; then
			disk[$1]=/dev/$(basename "$b")
			ctrl[$1]=$(controller "$1")
			[[ -n ${ctrl[$1]} ]]
			return
		fi
	done
	return 1
}

# controller KIND prints the /dev node of the controller that is connected to that target.
controller() {
	local c
	for c in /sys/class/nvme/nvme*; do
		if [[ -e $c/subsysnqn && $(<"$c/subsysnqn") == "${nqn[$1]}" ]]; then
			echo "/dev/$(basename "$c")"
			return
		fi
	done
}

# await COMPLAINT COMMAND... tries for up to 30 s.
await() {
	local complaint=$1 end=$((SECONDS + 30))
	shift
	until "$@"; do
		if [[ $SECONDS -ge $end ]]; then
			say "$complaint after 30 s"
			return 1
		fi
		sleep 0.1
	done
}

# ---- the kernel's log ------------------------------------------------------------------------------------------------

# complaints prints what the kernel has logged at levels err and crit since log_mark, without times and numbers, so that two runs
# can be compared.
log_mark() { dmesg --level err,crit,alert,emerg | wc -l >"$scratch/mark"; }
complaints() {
	dmesg --notime --level err,crit,alert,emerg | tail -n +$(($(<"$scratch/mark") + 1)) |
		sed -E 's/nvme[0-9]+/nvmeN/g; s/0x[0-9a-f]+/0xN/g; s/[0-9]+/N/g' | sort -u
}
