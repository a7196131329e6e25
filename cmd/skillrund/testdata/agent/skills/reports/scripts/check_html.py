import html.parser
import sys


class Counter(html.parser.HTMLParser):
    rows = 0

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"


counter = Counter()
counter.feed(open(sys.argv[1], encoding="utf-8").read())
print(f"{sys.argv[1]}: {counter.rows} rows")
