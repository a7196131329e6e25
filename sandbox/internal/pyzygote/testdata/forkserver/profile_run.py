import cProfile, pstats, sys
p = cProfile.Profile()
p.runcall(sum, [1])
print(pstats.Stats(p).total_calls)
