import ssl
print(len(ssl.RAND_bytes(8)), ssl.RAND_status())
print(ssl.create_default_context().verify_mode)
