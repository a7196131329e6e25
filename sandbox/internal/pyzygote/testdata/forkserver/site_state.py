import builtins, site, sys
print(site.ENABLE_USER_SITE, site.PREFIXES, site.getusersitepackages(), site.getuserbase(), site.USER_SITE, site.USER_BASE)
print(sorted(set(dir(builtins)) - set("_")), "sitecustomize" in sys.modules, "usercustomize" in sys.modules)
