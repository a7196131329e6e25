import warnings
warnings.warn("user")
warnings.warn("deprecated", DeprecationWarning)
warnings.warn("two up", stacklevel=2)
warnings.warn("far up", stacklevel=9)
print(warnings.filters)
