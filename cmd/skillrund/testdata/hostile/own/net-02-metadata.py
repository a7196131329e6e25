targets = [("169.254.169.254", 80), ("169.254.170.2", 80), ("169.254.170.23", 80), ("100.100.100.200", 80), ("192.0.0.192", 80), ("168.63.129.16", 80),
           ("169.254.169.253", 53), ("fd00:ec2::254", 80), ("fd00:ec2::23", 80), ("fe80::a9fe:a9fe", 80), ("metadata.google.internal", 80), ("10.0.0.1", 443)]
for host, port in targets:
    try:
        socket.create_connection((host, port), 3).close()
        print("FAIL connected", host)
    except TimeoutError:
        print("FAIL no immediate answer from", host)
    except OSError as e:
        print("PASS", host, e)
    if ":" in host or host[0].isdigit():
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        fails("datagram to " + host, lambda: s.sendto(b"x", (host, port)))
