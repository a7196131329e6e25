import helper.inside
print(helper.inside.__file__, helper.inside.value)
