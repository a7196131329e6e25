input("? ")
