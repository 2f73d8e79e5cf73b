"""What was measured on what: processor, versions, commit and options; no names of machines or paths."""

import datetime
import hashlib
import json
import pathlib
import platform
import subprocess

from engines import CALLS, HERE, WEIGHTS

# Of lscpu; the rest says nothing about speed.
PROCESSOR = ["Architecture", "Model name", "CPU family", "Model", "CPU(s)", "Thread(s) per core", "Hypervisor vendor"]
PROCESSOR += ["L1d cache", "L2 cache", "L3 cache", "NUMA node(s)", "Flags"]
PACKAGES = ["torch", "transformers", "gguf", "numpy"]
ASK = """
import importlib.metadata as metadata, json, sys
found = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
try:
    import llama_cpp
    found["llama-cpp-python"] = llama_cpp.__version__
    found["llama.cpp, compiled with"] = llama_cpp.llama_print_system_info().decode().strip()
except ImportError:
    pass
print(json.dumps(found))
"""


def output(*command):
    """Standard output, empty where the command is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    fields = [line.split(":", 1) for line in output("lscpu").splitlines() if ":" in line]
    fields = {name.strip(): value.strip() for name, value in fields}
    found = {name: fields[name] for name in PROCESSOR if name in fields}
    try:
        total = pathlib.Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0]
        found["Memory"] = f"{int(total) / 2**20:.1f} GiB"
    except (OSError, IndexError):
        pass
    release = platform.release().split("-")[0]
    return found | {"System": f"{platform.system()} {release}"}


def versions(bench):
    found = {"omnidraft": output(bench.binary, "--version").removeprefix("omnidraft ")}
    found |= packages(bench.python)
    found["llama-server"] = llama_server(bench.peers / "llama-server")
    return found


def packages(python):
    """Versions of the packages that this Python has."""
    return json.loads(output(python, "-c", ASK, *PACKAGES) or "{}")


def llama_server(program):
    """The package out of whose source setup.sh compiled llama.cpp's server; the program itself says no version."""
    file = program.with_name(program.name + ".version")
    return f"llama-cpp-python {file.read_text().strip()}, its server" if file.exists() else "unknown"


def inside(folder):
    """A path as it is written in this repository; of others the last part, since places say nothing."""
    folder = pathlib.Path(folder).resolve()
    root = HERE.parents[1]
    return folder.relative_to(root) if folder.is_relative_to(root) else folder.name


def program(bench):
    """Which program was measured."""
    changed = output("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": output("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(changed),
        "binary_sha256": hashlib.sha256(bench.binary.read_bytes()).hexdigest(),
    }


def collect(args, bench):
    now = datetime.datetime.now(datetime.timezone.utc)
    command = ["scripts/peers/compare.py", "--shapes", ",".join(args.shapes)]
    command += ["--engines", ",".join(args.engines), "--repetitions", str(args.repetitions)]
    command += ["--seconds", f"{args.seconds:g}", "--threads", str(args.threads), "--context", str(args.context)]
    return {
        "started": now.isoformat(timespec="seconds"),
        # Every option that changes a number, given or not.
        "command": " ".join(command),
    } | program(bench) | {
        "machine": machine(),
        "versions": versions(bench),
        "threads": args.threads,
        "context": args.context,
        "calls": CALLS,
        "repetitions": args.repetitions,
        "weights": {engine: WEIGHTS[engine] for engine in args.engines},
    }
