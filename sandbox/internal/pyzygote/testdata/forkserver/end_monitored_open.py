import builtins, gc, io, json, sys
for module in (gc, sys, io, json, builtins):
    for name, function in list(vars(module).items()):
        if type(function).__name__ == "builtin_function_or_method" and not name.startswith("_"):
            def wrapper(*args, _name=name, _function=function, _stdout=sys.stdout, _len=len, **kwargs):
                if _name not in ("len", "isinstance", "print", "getattr", "hasattr", "id", "repr"):
                    _stdout.write("called %s\n" % _name)
                return _function(*args, **kwargs)

            if module is gc:
                setattr(module, name, wrapper)
print("end")
