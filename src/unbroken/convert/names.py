"""Commands of scripts by what they are for, as far as a run has no use for them."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They say something, set how bash behaves, or ask; a config needs none of it.
QUIET = _names(
    """
    : [ awk basename break cat clear compgen continue cut date deactivate df diff dirname du echo env false find free
    getopts grep head hostname id let local logger ls lsb_release lscpu module-info nvidia-smi printenv printf pwd read
    readlink realpath return rocm-smi rocminfo sacct scontrol sed seff set shift shopt sinfo sleep sort squeue sstat
    bc comm expr join mapfile nl paste readarray rev seq stat sync tac tail tr uniq xargs
    tee test true type umask uname uptime wc which whoami
    """
)
# They prepare what stays; once, by hand, is enough.
ONCE = _names("cmake curl g++ gcc gfortran git make mpicc nvcc unlink wget")
INSTALLS = _names("virtualenv pip pip3")
MANAGERS = _names("conda mamba micromamba spack")
STOPS = _names("disown fg jobs kill pkill scancel wait")
FILES = _names("chmod cp gunzip gzip ln mkdir mv rsync scp tar touch ulimit unzip")
REMOVES = _names("rm rmdir shred")
MODULE = _names("module ml")
DMTCP_HELPERS = _names("dmtcp_coordinator dmtcp_command start_coordinator")
SHELL = _names("cd pushd popd exit trap sbatch source . export unset")
# They change what the program finds: where they cannot be carried over, it is said.
MATTERS = ONCE | INSTALLS | FILES | REMOVES | MODULE | MANAGERS | {"source", ".", "cd"}
NO_PROGRAM = QUIET | ONCE | INSTALLS | STOPS | FILES | REMOVES | MODULE | DMTCP_HELPERS | SHELL
