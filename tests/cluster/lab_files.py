"""The configuration files of the laboratory cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CPUS = 4
MEMORY_MB = 4000
GPUS = 2

# More than a cluster of the tests runs; times the highest port it is less than Slurm's highest number of a job.
JOBS_EACH = 1000


@dataclass(frozen=True)
class Plan:
    """What a laboratory is to be: `nodes` by name, each a slurmd of its own on this machine."""

    folder: Path
    host: str
    user: str
    nodes: tuple[str, ...]
    first_port: int
    has_cgroups: bool
    has_accounting: bool
    has_devices: bool

    @property
    def gpu_nodes(self) -> tuple[str, ...]:
        """The second half of the nodes for everybody."""
        return self.nodes[:-1][len(self.nodes) // 2 :]

    @property
    def shared_node(self) -> str:
        """Where urgent jobs push preemptible ones away, and disturb nobody else."""
        return self.nodes[-1]

    @property
    def database_port(self) -> int:
        return self.first_port

    @property
    def accounting_port(self) -> int:
        return self.first_port + 1

    @property
    def controller_port(self) -> int:
        return self.first_port + 2

    def node_port(self, number: int) -> int:
        """Of the slurmd with that number, from 0."""
        return self.first_port + 3 + number


def slurm_conf(plan: Plan) -> str:
    """The one file by which every daemon and command finds the cluster (SLURM_CONF)."""
    folder = plan.folder
    return f"""\
ClusterName=lab
SlurmctldHost={plan.host}(127.0.0.1)
SlurmctldPort={plan.controller_port}
SlurmUser={plan.user}
SlurmdUser={plan.user}
AuthType=auth/munge
# Credentials live two minutes, as everywhere: with shorter ones a launch that takes longer, beside other tests, kills
# its job. A requeued job rests as long; the laboratory takes that away (lab.py).
AuthInfo=socket={folder}/run/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
# PMIx and Open MPI name folders in /tmp and files in /dev/shm after user, job and step, which two clusters of one
# machine must not share: a step whose folder is there already is not started.
TmpFS={folder}/tmp
FirstJobId={plan.first_port * JOBS_EACH}
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
{_tracking(plan)}
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
DefMemPerCPU=500
# An idle cluster that starts a job at once: what is measured is unbroken, not the scheduler's rests.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=5,batch_sched_delay=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
# A lost node is noticed within a test's patience.
SlurmdTimeout=10
# Slurm's own, and below as much GraceTime: time to save, also where many tests share two cores.
KillWait=30
OverTimeLimit=0
MinJobAge=300
ReturnToService=2
MessageTimeout=20
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
{_accounting(plan)}
{_nodes(plan)}
{_partitions(plan)}
"""


def _tracking(plan: Plan) -> str:
    if plan.has_cgroups:
        return "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup"
    return "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"


def _accounting(plan: Plan) -> str:
    if not plan.has_accounting:
        return "AccountingStorageType=accounting_storage/none"
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={plan.accounting_port}
AccountingStoragePass={plan.folder}/run/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
# So that accounting keeps the comment by which a segment's job is known.
AccountingStoreFlags=job_comment"""


def _nodes(plan: Plan) -> str:
    lines = []
    for number, node in enumerate(plan.nodes):
        gres = f" Gres=gpu:fake:{GPUS} Feature=fast" if node in plan.gpu_nodes else " Feature=plain"
        where = f"NodeHostname={plan.host} NodeAddr=127.0.0.1 Port={plan.node_port(number)}"
        lines.append(f"NodeName={node} {where} CPUs={CPUS} RealMemory={MEMORY_MB} State=UNKNOWN{gres}")
    return "\n".join(lines)


def _partitions(plan: Plan) -> str:
    every, gpu, shared = ",".join(plan.nodes[:-1]), ",".join(plan.gpu_nodes), plan.shared_node
    return f"""\
PartitionName=short Nodes={every} Default=YES MaxTime=10 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=gpu Nodes={gpu} MaxTime=5 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=preempt Nodes={shared} MaxTime=10 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=urgent Nodes={shared} MaxTime=10 State=UP PriorityTier=100 PreemptMode=OFF"""


def gres_conf(plan: Plan) -> str:
    """Fake GPUs: character devices that behave like /dev/null."""
    device = f" File={plan.folder}/dev/nvidia[0-{GPUS - 1}]" if plan.has_devices else f" Count={GPUS}"
    return "".join(f"NodeName={node} Name=gpu Type=fake{device}\n" for node in plan.gpu_nodes)


def cgroup_conf() -> str:
    """Memory limits that are kept."""
    return "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\nConstrainCores=no\n"


def slurmdbd_conf(plan: Plan) -> str:
    """Accounting in a database of its own."""
    folder = plan.folder
    return f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={plan.accounting_port}
SlurmUser={plan.user}
PidFile={folder}/run/slurmdbd.pid
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={plan.database_port}
StorageUser=slurm
StoragePass=laboratory
StorageLoc=slurm_acct_db
"""


DATABASE_START = """\
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'laboratory';
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY 'laboratory';
GRANT ALL ON *.* TO 'slurm'@'127.0.0.1';
GRANT ALL ON *.* TO 'slurm'@'localhost';
"""
