# -*- coding: latin-1 -*-
print("é", ascii("é"))
