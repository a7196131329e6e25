import sys
import os
import signal
import subprocess

run = subprocess.run
assert run(["sort"], input="b\na\n", capture_output=True, text=True, check=True).stdout == "a\nb\n"
assert run("echo $((6 * 7)) | tr 4 5", shell=True, capture_output=True, text=True).stdout == "52\n"
assert run([sys.executable, "-c", "import sys; sys.exit(3)"]).returncode == 3
try:
    run(["sleep", "60"], timeout=0.05)
    raise SystemExit("no timeout")
except subprocess.TimeoutExpired:
    pass
p = subprocess.Popen(["sleep", "60"], start_new_session=True)
os.killpg(p.pid, signal.SIGTERM)
assert p.wait() == -signal.SIGTERM
p = subprocess.Popen(["sleep", "60"])
p.send_signal(signal.SIGSTOP)
p.send_signal(signal.SIGCONT)
p.kill()
assert p.wait() == -9
first = subprocess.Popen(["seq", "1000"], stdout=subprocess.PIPE)
assert run(["wc", "-l"], stdin=first.stdout, capture_output=True, text=True).stdout.strip() == "1000"
first.wait()
assert run(["env"], env={"A": "b"}, capture_output=True, text=True).stdout == "A=b\n"
assert run(["pwd"], cwd="/tmp", capture_output=True, text=True).stdout == "/tmp\n"
assert os.system("exit 4") >> 8 == 4
assert os.popen("id -un").read() == "skill\n"
assert os.posix_spawn("/usr/bin/true", ["true"], {}) > 0
assert os.wait()[1] == 0
assert run(["grep", "-q", "x"], input="x\n", text=True).returncode == 0
assert run("nproc; ps -e -o pid,comm; df -h /workspace; free -m; du -s /tmp; uname -a; which python", shell=True, capture_output=True).returncode == 0
print("ok")
