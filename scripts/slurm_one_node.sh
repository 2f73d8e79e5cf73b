#!/usr/bin/env bash
# A real Slurm with one node, for tests and for trying `--launcher slurm` on a laptop.
#
#   slurm_one_node.sh [--install] start DIR   start munged, slurmctld and slurmd; all their files are in DIR
#   slurm_one_node.sh env DIR                 print what a shell needs: eval "$(slurm_one_node.sh env DIR)"
#   slurm_one_node.sh stop DIR                cancel what runs and end the three daemons
#
# Everything listens on loopback only. Neither systemd nor cgroups nor a database is needed. It runs as
# root or as a plain user (jobs then run as that user), unless the machine's name stands for an address
# outside loopback: then root is needed, or a line in /etc/hosts.
#
# Debian packages: slurm-wlm, munge. --install installs them with apt-get where they are missing.
# SLURM_NODE_CPUS=N pretends that the node has N processors.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

readonly PACKAGES=(slurm-wlm munge)
readonly START_SECONDS=30  # for each daemon to answer
readonly STOP_SECONDS=15   # for jobs to end, then for each daemon

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
}

fail() {
  echo "slurm_one_node: $*" >&2
  exit 1
}

# --- packages -----------------------------------------------------------------------------------------

missing_programs() {
  local program
  for program in munged munge slurmctld slurmd sbatch squeue scontrol sinfo scancel; do
    command -v "$program" >/dev/null || echo "$program"
  done
}

require_programs() {
  local missing
  missing=$(missing_programs | paste -sd' ')
  [[ -z $missing ]] && return
  local install="apt-get install -y --no-install-recommends ${PACKAGES[*]}"
  if [[ $1 != install ]]; then
    fail "not installed: $missing. On Debian: $install (or start with --install)"
  fi
  apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive $install >&2
  missing=$(missing_programs | paste -sd' ')
  [[ -z $missing ]] || fail "still not installed: $missing"
}

# --- processes ----------------------------------------------------------------------------------------

# The recorded process of a daemon, if it lives and still is that daemon of this folder: numbers of
# processes are used again, and an ended child stays visible until its parent asks for it.
pid_of() {
  local pid
  pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "$dir/" || return 1
  echo "$pid"
}

# launch NAME COMMAND...: in a session of its own, so that Ctrl-C at this terminal does not reach it.
launch() {
  local name=$1
  shift
  setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

# until_ready NAME COMMAND...: waits until the command succeeds; shows the daemon's log if it never does.
until_ready() {
  local name=$1 deadline=$((SECONDS + START_SECONDS))
  shift
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$(cat "$dir/$name.pid")" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "slurm_one_node: $name did not start; its log ends:" >&2
      tail -n 20 "$dir/log/$name.log" >&2
      stop
      exit 1
    fi
    sleep 0.1
  done
}

end() {
  local pid deadline=$((SECONDS + STOP_SECONDS))
  while pid=$(pid_of "$1"); do
    if ((SECONDS >= deadline)); then
      kill -KILL "$pid" 2>/dev/null || true
      break
    fi
    kill -TERM "$pid" 2>/dev/null || true
    sleep 0.1
  done
  rm -f "$dir/$1.pid"
}

# --- configuration ------------------------------------------------------------------------------------

# Two free ports of loopback, from a random place so that two starts at once rarely meet.
free_ports() {
  local port=$((20000 + RANDOM % 20000)) found=0
  while ((found < 2)); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      found=$((found + 1))
    fi
    port=$((port + 1))
  done
}

# Slurm listens on the address that the machine's name stands for. Where that is not loopback, the two
# daemons get a name of their own that only they and their jobs see.
choose_name() {
  node_host=$(hostname)
  own_name=()
  if [[ $(getent ahostsv4 "$node_host" | head -n 1) != 127.* ]]; then
    # The quoted script is for the inner shell.
    # shellcheck disable=SC2016
    own_name=(unshare --uts sh -c 'hostname localhost && exec "$@"' sh)
    "${own_name[@]}" true 2>/dev/null ||
      fail "the name $node_host is no loopback address and only root can give the daemons another:" \
        "add the line '127.0.0.1 $node_host' to /etc/hosts, or start as root"
    node_host=localhost
  fi
  node_host=${node_host%%.*}
}

write_configuration() {
  local user cpus memory ports
  user=$(id -un)
  cpus=${SLURM_NODE_CPUS:-$(nproc)}
  memory=$(awk '/^MemTotal/ { print int($2 / 1024 * 0.9) }' /proc/meminfo)
  mapfile -t ports < <(free_ports)
  cat >"$dir/slurm.conf" <<CONF
ClusterName=onenode
SlurmctldHost=$node_host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
# Loopback only.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
# cred_expire is also how long a requeued job waits.
AuthInfo=socket=$dir/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
# No cgroups, no accounting.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/completed.txt
MpiDefault=none
SwitchType=switch/none
# Processors are shared out, not whole nodes; scheduling at once.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
InactiveLimit=0
NodeName=n1 NodeHostname=$node_host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP
CONF
  # Later versions ask for a cgroup plugin even so.
  local version
  version=$(slurmctld -V | grep -oE '[0-9]+' | head -n 1)
  if ((version >= 24)); then
    echo CgroupPlugin=disabled >"$dir/cgroup.conf"
  fi
}

# --- commands -----------------------------------------------------------------------------------------

node_is_up() {
  # A star behind the state means that the node does not answer.
  [[ $(sinfo -h -N -o %t) =~ ^(idle|mix|alloc|comp)$ ]]
}

start() {
  require_programs "$1"
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd -P)
  # The path of a Unix socket may have about a hundred characters.
  ((${#dir} <= 80)) || fail "the path $dir is longer than 80 characters"
  local name
  for name in munged slurmctld slurmd; do
    if pid_of "$name" >/dev/null; then fail "$name is already running in $dir"; fi
  done
  mkdir -p "$dir"/{log,run,spool,state}
  if [[ ! -s $dir/munge.key ]]; then
    (umask 077 && head -c 128 /dev/urandom >"$dir/munge.key")
  fi
  choose_name
  write_configuration
  export SLURM_CONF=$dir/slurm.conf

  # --force: a warning instead of an end where a folder above DIR is private, as temporary folders are.
  launch munged munged --foreground --force --num-threads=2 --key-file="$dir/munge.key" \
    --socket="$dir/munge.socket" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged-own.log" --seed-file="$dir/run/munged.seed"
  until_ready munged munge -n -S "$dir/munge.socket"
  launch slurmctld "${own_name[@]}" slurmctld -D -f "$dir/slurm.conf"
  until_ready slurmctld scontrol ping
  launch slurmd "${own_name[@]}" slurmd -D -N n1 -f "$dir/slurm.conf"
  until_ready slurmd node_is_up
  echo "slurm_one_node: $(sinfo -h -o 'node %n is %t with %c processors')" >&2
  print_environment
}

print_environment() {
  printf 'export SLURM_CONF=%q\n' "$dir/slurm.conf"
}

stop() {
  export SLURM_CONF=$dir/slurm.conf
  # Jobs first: their shepherds outlive slurmd.
  if pid_of slurmctld >/dev/null && pid_of slurmd >/dev/null; then
    local job deadline=$((SECONDS + STOP_SECONDS))
    for job in $(squeue -h -o %F 2>/dev/null | sort -u); do
      scancel "$job" 2>/dev/null || true
    done
    while [[ -n $(squeue -h 2>/dev/null) ]] && ((SECONDS < deadline)); do
      sleep 0.2
    done
  fi
  end slurmd
  end slurmctld
  end munged
}

install=no
if [[ ${1-} == --install ]]; then
  install=install
  shift
fi
command=${1-}
dir=${2-}
if [[ -z $dir || $# -ne 2 ]]; then
  usage >&2
  exit 2
fi
case $command in
  start) start "$install" ;;
  env | stop)
    [[ -d $dir ]] || fail "there is no folder $dir"
    dir=$(cd "$dir" && pwd -P)
    if [[ $command == env ]]; then print_environment; else stop; fi
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
