import urllib.request
import parsel_of_nobody

print(urllib.request.urlopen("https://example.org").status)
