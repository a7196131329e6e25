os.chdir(b"/workspace")
names = [b"new\nline", b"\xff\xfe", b"\x1b[31mred", b"-rf", b"a" * 255, b"$(id)", b"`id`", b"; id", b" ", b"...", b"\xe2\x80\xaegpj.exe", b'"quoted"',
         b"'", b"a\tb\rc", b"%s%n", b"\\", b"..\\..\\x", b"~", b"*", b"\xed\xa0\x80", b"caf\xc3\xa9", b"cafe\xcc\x81", b"CON", b"level=error msg=forged"]
for name in names:
    with open(name, "wb") as f:
        f.write(name)
deep = b"/".join([b"d"] * 60)
os.makedirs(deep)
with open(deep + b"/leaf", "wb") as f:
    f.write(b"deep")
os.mkdir(b"\xfe\xfe")
with open(b"\xfe\xfe/\n", "wb") as f:
    f.write(b"beneath")
os.symlink(b"/etc/passwd", b"bad\xfflink\nlevel=error msg=forged")
print("PASS planted", len(names))
