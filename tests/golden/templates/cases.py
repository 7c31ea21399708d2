"""What generate.py renders: small cases, and conversations for the *.jinja files here."""
import json

CONTEXT = {
    "name": "Ada", "n": 5, "zero": 0, "neg": -7, "pi": 3.25, "yes": True, "no": False, "nil": None, "empty": "",
    "text": "Hello, World", "uni": "héllo 世界 🎉", "pad": "  a b\t\n", "multi": "l1\nl2\n\nl4",
    "nums": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, 4]], "none_list": [],
    "d": {"b": 2, "a": 1, "items": "shadow", "c": {"x": [10, 20]}},
    "users": [{"name": "Bob", "age": 30, "on": True}, {"name": "amy", "age": 25, "on": False},
              {"name": "Cal", "age": 30, "on": True}],
    "html": "<a href=\"x\">T&C's</a>",
}

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
7 / 2
6 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7.5 % 2
-7.5 % 2
7.5 // 2
2 ** 3
2 ** 3 ** 2
2 ** -1
-2 ** 2
1 / 0
1 // 0
1 % 0
0.1 + 0.2
1e20
1e16
1e15
123456789.123
1.0
1e-5
0.0001
1.5e300 * 1e10
1_000
0x1f
0b101
0o17
"a" + "b"
"a" ~ 1 ~ none ~ true ~ 1.5
"a" + 1
1 + "a"
[1] + [2]
[1] * 3
"ab" * 3
3 * "ab"
"ab" * -1
(1, 2) + (3,)
true + 1
true * 3
none + 1
missing + 1
missing ~ "x"
missing
missing.attr
missing["k"]
missing is defined
missing is undefined
d.zzz
d.zzz is defined
d.zzz.y
d.b
d["b"]
d["items"]
d.c.x[1]
d.c.x.1
d.get("b")
d.get("q")
d.get("q", 9)
d.keys() | list
d.values() | list | length
d.items() | list | first
d | length
"b" in d
"q" not in d
nums[0]
nums[-1]
nums[9]
nums[9] is defined
nums["x"]
nums[1:]
nums[:-1]
nums[::-1]
nums[::2]
nums[-2:]
nums[5:]
nums[2:0:-1]
nums[::0]
nums[none:2]
text[0]
text[-1]
text[1:4]
text[::-1]
text[::2]
text[-5:]
text[100:]
uni[1]
uni[-1]
uni[6:8]
uni[::-1]
uni | length
uni | upper
uni.title()
not true
not none
not 0
not ""
not "x"
not []
1 and 2
0 and 2
0 or 3
1 or 3
none or "d"
1 == 1.0
1 == true
"1" == 1
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{"a": 1} == {"a": 1.0}
none == none
none == false
missing == missing
missing == none
1 != 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
"a" < "b"
"a" < 1
[1, 2] < [1, 3]
none < 1
1 in nums
9 in nums
9 not in nums
"ell" in text
"zz" in text
"" in text
1 in text
1 in 5
not 1 in nums
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
"a" if 0 else "b" if 0 else "c"
1 if n > 3 and yes else 0
[1, "a", none, true, 1.5, [2], {"k": "v"}]
(1,)
()
(1, 2)
{}
{"a": 1, "b": [1, 2]}
{1: 2, none: 3, true: 4}
["it's"]
['say "hi"']
['both \' and "']
["new\nline\t\\"]
["é世\u200b\x07"]
"\x41\u0042\t|"
'it\'s'
"a\qb"
"con" "cat" 'ed'
"\101"
nums | sort
nums | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
words | sort | join(",")
users | sort(attribute="age") | map(attribute="name") | join(",")
users | sort(attribute="age,name") | map(attribute="name") | join(",")
users | map(attribute="name") | list
users | map(attribute="zip", default="none") | list
users | map(attribute="zip") | list | length
words | map("upper") | list
words | map("replace", "a", "z") | join
users | selectattr("on") | map(attribute="name") | list
users | rejectattr("on") | map(attribute="name") | list
users | selectattr("age", "equalto", 30) | list | length
users | selectattr("age", ">", 26) | map(attribute="name") | join(" ")
users | selectattr("name", "in", ["Bob", "Cal"]) | list | length
nums | select("odd") | list
nums | reject("odd") | list
nums | select("gt", 1) | list
[0, 1, "", "a", none] | select | list
[0, 1, "", "a", none] | reject | list
nums | select("nosuch") | list
nums | map("nosuch") | list
nums | map | list
users | groupby("age") | list | length
nums | sum
users | sum(attribute="age")
nums | sum(start=10)
[[1],[2]] | sum(start=[])
nums | max
nums | min
words | max
words | min
[] | max
users | max(attribute="age")
nums | first
nums | last
[] | first
[] | last
"abc" | first
"abc" | last
nums | reverse | list
"abc" | reverse
nums | length
text | length
5 | length
none | length
missing | length
nums | list
"abc" | list
missing | list
d | list
nums | join
nums | join("-")
users | join(", ", attribute="name")
missing | join(",")
[1, [2], none] | join("|")
nums | batch(2) | list
nums | batch(2, "x") | list
nums | slice(2) | list
nums | slice(2, "x") | list
[1, 1, 2, "a", "A"] | unique | list
["a", "A"] | unique(case_sensitive=true) | list
d | dictsort | first
{"b": 1, "A": 2} | dictsort
{"b": 1, "A": 2} | dictsort(true)
{"b": 1, "A": 2} | dictsort(false, "value")
{"b": 1, "A": 2} | dictsort(by="value", reverse=true)
{"a": 1} | items | list
missing | items | list
5 | items | list
missing | default("x")
none | default("x")
none | default("x", true)
"" | d("x", true)
"" | d("x")
missing | default
d.q | default("dflt")
text | upper
text | lower
"hELLO wORLD" | capitalize
"hello wORLD-foo (bar)" | title
"hello wORLD-foo's".title()
pad | trim
pad | trim | length
"xxaxx" | trim("x")
text | replace("l", "L")
text | replace("l", "L", 2)
"aaa" | replace("", "-")
"a" | center(5)
"ab" | center(5)
"abc".center(6, "*")
"abc".center(7)
"ab".ljust(4, ".")
"ab".rjust(4, ".")
"ab".ljust(1)
"ab".ljust(4, "..")
multi | indent
multi | indent(2)
multi | indent(2, true)
multi | indent(2, true, true)
multi | indent("> ")
multi | indent(width=3, first=true)
text | truncate(5)
text | truncate(5, true, "…", 0)
text | truncate(8, false, "...", 0)
text | truncate(3, true, "....")
"a b c d e f g h" | truncate(10)
text | wordcount
"a-b c_d 1" | wordcount
html | escape
html | e
html | striptags
"<p>a <b>b</b>\n c" | striptags
html | urlencode
"a b/ç" | urlencode
{"a b": "c&d", "e": 1} | urlencode
"%s-%05.1f-%d" | format("x", 3.14159, 42)
"%(a)s" | format(a=1)
"%s" | format
"%d" | format("x")
"%s %s" % (1, 2)
"%s" % "a"
"%5s|%-5s|%05d|%+d|%x|%X|%o|%e|%g|%%" % ("a", "b", 42, 7, 255, 255, 8, 12345.678, 0.0001)
"%r %s" % ("a", ["a"])
"%c%c" % (65, "z")
"%.2s" % "abc"
"%(k)s" % {"k": 5}
"%s" % (1, 2)
"%q" % 1
"{} {}".format(1, "a")
"{1} {0}".format(1, "a")
"{a} {b[0]} {c.x}".format(a=1, b=[2], c={"x": 1})
"{:>5}|{:<5}|{:^5}|{:*^5}".format("a", "b", "c", "d")
"{:05d} {:+d} {:,} {:x} {:#x} {:b}".format(42, 7, 1234567, 255, 255, 5)
"{:.2f} {:8.3f} {:e} {:g} {:%}".format(3.14159, 2.5, 12345.678, 0.5, 0.25)
"{!r} {!s}".format("a", "b")
"{{}} {}".format(1)
"{}".format()
"{x}".format()
"{:d}".format("a")
"{:5}".format(1.5)
"{:.3}".format(3.14159)
"{:.3}".format("abcdef")
"{:5}".format([1])
"42" | int
"42.9" | int
"abc" | int
"abc" | int(7)
"ff" | int(0, 16)
"0xff" | int(0, 16)
"  12  " | int
"1_000" | int
3.99 | int
-3.99 | int
none | int
[] | int(3)
true | int
"inf" | int
"3.5" | float
"abc" | float
"abc" | float(1.5)
"1e3" | float
none | float
5 | float
42.55 | round
42.55 | round(1)
2.5 | round
3.5 | round
2.675 | round(2)
42 | round
42.55 | round(1, "floor")
42.51 | round(1, "ceil")
1234.5 | round(-2)
1234 | round(-2)
-5 | abs
-5.5 | abs
"a" | abs
123 | string
none | string
[1] | string
text | safe
d.c | tojson
[1, 1.5, true, none, "a\"b\\c\n\t\u0001é世🎉/<>&'"] | tojson
{"a": {"b": [1, {"c": 2}], "e": [], "f": {}}} | tojson(indent=2)
{"b": 1, "a": 2} | tojson(sort_keys=true)
{"a": [1, 2]} | tojson(separators=(",", ":"))
"é🎉" | tojson(ensure_ascii=true)
[1, 2] | tojson(indent=0)
{"a": 1} | tojson(indent="\t")
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
missing | tojson
(1, 2) | tojson
1e100 | tojson
range(2) | list | tojson
range(2) | tojson
nums | attr("append") is defined
d | attr("b")
d | attr("get") is callable
n is number
n is integer
n is float
pi is float
pi is number
yes is number
yes is integer
yes is boolean
n is boolean
yes is true
no is false
1 is true
nil is none
none is not none
text is string
n is string
d is mapping
nums is mapping
nums is sequence
d is sequence
text is sequence
n is sequence
nums is iterable
n is iterable
missing is iterable
missing is sequence
range is callable
text is callable
text.upper is callable
3 is odd
3 is even
4 is even
9 is divisibleby(3)
9 is divisibleby 3
9 is not divisibleby 2
1 is eq 1
1 is ne 2
1 is lt 2
2 is le 2
3 is gt(2)
3 is ge 4
1 is in [1, 2]
5 is in([1, 2])
"abc" is lower
"Abc" is lower
"ABC" is upper
none is sameas none
1 is sameas true
nums is sameas nums
"upper" is filter
"nosuch" is filter
"odd" is test
"nosuch" is test
text is nosuch
text | nosuch
1 is defined and 2 is defined
n is odd or false
n is not odd
not n is odd
"a,b,,c".split(",")
"a,b,,c".split(",", 1)
" a  b c ".split()
" a  b c ".split(none, 1)
" a  b c ".rsplit(none, 1)
" a  b c ".rsplit()
"a,b,c".rsplit(",", 1)
"a--b--c".split("--")
"aaa".split("aa")
"aaa".rsplit("aa", 1)
"".split()
"".split(",")
"a".split("")
multi.splitlines()
multi.splitlines(true)
"a\r\nb\rc".splitlines()
pad.strip()
pad.lstrip()
pad.rstrip()
"xyaxy".strip("yx")
"xyaxy".lstrip("x")
"xyaxy".rstrip("y")
"éaé".strip("é")
text.startswith("Hell")
text.startswith("ell")
text.startswith("ell", 1)
text.startswith(("x", "He"))
text.endswith("ld")
text.endswith(("x", "y"))
text.endswith("Hello", 0, 5)
text.startswith(1)
text.replace("l", "1")
text.replace("l", "1", 1)
text.upper()
text.lower()
text.swapcase()
"hello WORLD".capitalize()
text.find("o")
text.find("o", 5)
text.find("z")
text.rfind("o")
text.index("W")
text.index("z")
text.count("l")
text.count("l", 0, 5)
"aaaa".count("aa")
"abc".count("")
uni.find("世")
uni.count("l")
", ".join(["a", "b"])
", ".join([1])
"-".join("abc")
"12".isdigit()
"1a".isdigit()
"".isdigit()
"ab".isalpha()
"a1".isalpha()
"é世".isalpha()
"a1".isalnum()
"a ".isalnum()
" \t".isspace()
"".isspace()
"AB".isupper()
"Ab".isupper()
"ab1".islower()
"1".islower()
"prefix-x".removeprefix("prefix-")
"prefix-x".removeprefix("x")
"x.txt".removesuffix(".txt")
"42".zfill(5)
"-42".zfill(5)
"+4".zfill(1)
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("=")
"Straße".upper()
"ÀÉ".lower()
range(3)
range(3) | list
range(1, 4) | list
range(5, 0, -2) | list
range(0, 10, 3) | list
range(3)[1]
range(5)[1:3] | list
range(3) | length
2 in range(3)
range(1.5)
range(1, 2, 0)
range(10) | sum
range()
dict(a=1, b=2)
dict([("a", 1)])
dict({"a": 1}, b=2)
namespace(a=1).a
namespace(a=1).b is defined
joiner()()
cycler("a", "b").next()
cycler("a", "b").current
[[1, 2], [3]] | map("first") | list
[[1, 2], [3]] | map("length") | list
["1", "2"] | map("int") | sum
nested | map(attribute=0) | list
nested | map(attribute="1") | list
[{"a": {"b": 1}}] | map(attribute="a.b") | list
text.nosuch
text.nosuch()
text.upper(1)
none.x
none.x.y
n.x is defined
n()
"x"()
text.__class__
text.__class__.__mro__
"".join.__globals__
d.__init__
nums.pop is defined
"a" "b" | upper
("a" ~ "b") | upper
"a" ~ "b" | upper
-1 | abs
(-1) | abs
- 5 + 3
+ 5
+ "a"
- "a"
nums | join(",") ~ "!"
1 + 2 ~ 3
"%s" ~ 1 + 2
5 % 3 * 2
2 * 3 % 4
1 < 2 == true
1 in [1] == true
n if n is defined else 0
[1, 2, 3][1:][0]
"abc"[1:][0]
{"a": {"b": 5}}["a"]["b"]
{"a": 1}.a
[1,2,].0
{"a": 1,}
(1, 2, 3)[1]
[x for x in nums]
lambda: 1
1 +
1 2
a b
(1
[1
{"a" 1}
"unterminated
text | replace("a")
text | upper(1, 2)
text | center("x")
none | upper
true | lower
1.0 | string
1e22 | string
-0.0
0.1 * 3
1e400
5 // 0.0
2 ** 0.5
10 ** 18
"a" in ["a"] and "b" not in ["a"]
nums.index(2)
nums.count(1)
nums.index(99)
(1, 2, 1).count(1)
"%d%%" % 50
d | tojson | length
"é" | tojson
"x" | indent(2, first=true)
"\n\n" | indent(2)
"" | title
"a  b" | title
"ß" | upper
users[0].name[0]
users[-1]["name"] | lower
users | map(attribute="name") | map("upper") | join(",")
users | selectattr("on", "true") | list | length
users | selectattr("nick", "defined") | list | length
users | selectattr("name", "ne", "Bob") | map(attribute="age") | sum
users | first
users | tojson
"abc" | batch(2) | list
"hello"|upper|lower|capitalize|replace("H","J")
(nums | sort)[0]
nums | sort | first + 1
text is string and text | length > 3
not (text is string)
text is not string or n is number
""" .strip("\n").split("\n")

STATEMENTS = [
    "{% if n > 3 %}big{% elif n %}small{% else %}none{% endif %}",
    "{% if zero %}a{% elif neg %}b{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if 1, 2 %}tuple{% endif %}",
    "{% if %}{% endif %}",
    "{% if true %}",
    "{% endif %}",
    "{% for x in nums %}{{ x }},{% endfor %}",
    "{% for x in nums %}{{ loop.index }}/{{ loop.length }}{% if not loop.last %};{% endif %}{% endfor %}",
    "{% for x in nums %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in nums %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [] %}a{% else %}empty{% endfor %}",
    "{% for x in missing %}a{% else %}empty{% endfor %}",
    "{% for x in none %}a{% endfor %}",
    "{% for x in 5 %}a{% endfor %}",
    "{% for x in nums if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}",
    "{% for x in nums if x > 9 %}a{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }} {% endfor %}",
    "{% for a, b in nested %}{{ a + b }} {% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in nums %}{% endfor %}",
    "{% for c in 'héy' %}{{ c }}-{% endfor %}",
    "{% for x in nums %}{% for y in nums %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% for y in nums %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}|{% endfor %}",
    "{% for x in nums %}{% break %}{% else %}e{% endfor %}",
    "{% for x in nums %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{% else %}e{% endfor %}",
    "{% break %}",
    "{% continue %}",
    "{% for x in nums recursive %}{{ x }}{% endfor %}",
    "{% for x in [[1, [2]], [3]] recursive %}[{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}@{{ loop.depth }}{% endif %}]{% endfor %}",
    "{% for x in nums %}{{ loop(x) }}{% endfor %}",
    "{{ loop }}",
    "{% for x in nums %}{% set n = x %}{% endfor %}{{ n }}",
    "{% set n = 1 %}{% for x in nums %}{{ n }}{% set n = n + x %}{{ n }} {% endfor %}{{ n }}",
    "{% set ns = namespace(n=0) %}{% for x in nums %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace() %}{% set ns.x = 5 %}{{ ns.x }}{{ ns.y is defined }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}",
    "{% set d.x = 1 %}",
    "{% set q = 1 %}{% set q.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set x %}hello {{ name }}{% endset %}{{ x }}",
    "{% set x | upper %}hello {{ name }}{% endset %}{{ x }}",
    "{% set x | upper | replace('H', 'J') %}hello{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "{% set true = 1 %}",
    "{% set x %}",
    "{% set x = %}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% with %}{% set x = 1 %}{% endwith %}{{ x is defined }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs | length }}{% endmacro %}{{ m(1, 2, 3) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in {{ name }}{% endcall %}",
    "{% macro m(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(y) m(nums) %}<{{ y }}>{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro m() %}{{ name }}{% endmacro %}{{ m() | upper }}",
    "{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m(x) %}{% for i in x %}{{ i }}{% endfor %}{% endmacro %}{{ m(nums) }}{{ m('ab') }}",
    "{% macro m(*a) %}{% endmacro %}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[7]) }}{{ m(**{'a': 8}) }}",
    "{% for x in nums %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% filter upper %}a{{ name }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}banana{% endfilter %}",
    "{% filter nosuch %}a{% endfilter %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}",
    "a {% raw -%}   {{ x }}   {%- endraw %} b",
    "{% raw %}\n  x\n{% endraw %}\ny",
    "{% raw %}a",
    "{# comment #}a{# {{ x }} #}b",
    "{# unterminated",
    "a\n{# c #}\nb",
    "a\n   {# c #}   \nb",
    "a {#- c -#} b",
    "  {% if true %}\n  x\n  {% endif %}\n  y",
    "  {%+ if true %}\n  x\n  {%+ endif %}\n  y",
    "a\n{% if true +%}\nx\n{% endif %}\n",
    "a  {%- if true -%}  x  {%- endif -%}  b",
    "a\n\n{%- if true -%}\n\nx\n\n{%- endif -%}\n\nb",
    "  {{ 1 }}\n  {{ 2 }}\n",
    "a {{- 1 -}} b",
    "a {{+ 1 }} b",
    "{{ 1 }}\n",
    "{{ 1 }}\n\n",
    "x {% if true %} y {% endif %} z",
    "x{% set a = 1 %}\n  {% set b = 2 %}\n{{ a }}{{ b }}",
    "line1\r\nline2\r{{ 1 }}\n",
    "{% if true %}\n\n\nx{% endif %}",
    "\t{% if true %}x{% endif %}\t\n",
    "{% for x in nums -%}\n  {{ x }}\n{%- endfor %}",
    "{% for x in nums %}\n  {{- x }}\n{% endfor %}",
    "{{ '{{' }} {{ '}}' }} {{ '{%' }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': 1}['a'] }}{{ {'x': {}} }}",
    "}} %} #}",
    "{ { % {",
    "{{ }}",
    "{{",
    "{%",
    "{% %}",
    "{% nosuch %}",
    "{% if true %}a{% endfor %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% from 'x' import y %}",
    "{% block b %}x{% endblock %}",
    "{% block b %}x{% endblock b %}y",
    "{% generation %}a{{ name }}{% endgeneration %}b",
    "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% for x in nums %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}",
    "{{ raise_exception('bad: ' ~ n) }}",
    "{% if n > 100 %}{{ raise_exception('no') }}{% endif %}ok",
    "{{ strftime_now('%d %B %Y') }}|{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%b %d %H:%M:%S %%') }}",
    "{{ range is defined }}{{ strftime_now is defined }}{{ nope is defined }}",
    "{% set l = [] %}{% set _ = l.append(1) %}{% set _ = l.extend([2, 3]) %}{{ l }}",
    "{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}",
    "{% set l = [1, 3] %}{% set _ = l.insert(1, 2) %}{% set _ = l.reverse() %}{{ l }}",
    "{% set l = [] %}{{ l.pop() }}",
    "{% set l = [3, 1] %}{% set _ = l.sort() %}{% set _ = l.remove(3) %}{{ l }}{{ l.copy() }}{{ l.clear() }}{{ l }}",
    "{% set x = {} %}{% set _ = x.update({'a': 1}, b=2) %}{{ x }}",
    "{% set x = {'a': 1} %}{{ x.pop('a') }}{{ x.pop('b', 9) }}{{ x.setdefault('c', 3) }}{{ x }}",
    "{% set x = {'a': 1} %}{{ x.pop('zz') }}",
    "{% set x = dict(d, z=1) %}{{ x.z }}{{ x.b }}",
    "{% set j = joiner(', ') %}{% for x in nums %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
    "{% for g in users | groupby('age') %}{{ g.grouper }}:{{ g.list | length }} {% endfor %}",
    "{% for age, us in users | groupby('age') %}{{ age }}={{ us | map(attribute='name') | join('+') }} {% endfor %}",
    "{% for u in users | sort(attribute='name') %}{{ u.name }} {% endfor %}",
    "{% for row in nums | batch(2, '-') %}{{ row | join(',') }};{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in (1, 2) %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{{ 1, 2 }}",
    "{{ (nums | length) > 2 and 'many' or 'few' }}",
    "{% set messages = nums[1:] %}{{ messages }}{% set system = nums[0] %}{{ system }}",
    "{% for m in nums[::-1] %}{{ m }}{{ loop.index0 }}{% endfor %}",
    "{% for m in nums %}{{ nums[loop.index0 - 1] }}{% endfor %}",
    "{% for i in range(nums | length - 1, -1, -1) %}{{ nums[i] }}{% endfor %}",
    "{% if 'a' in d and d.a is defined and d['a'] is not none %}ok{% endif %}",
    "{% if not (yes and no) or (n == 5) %}ok{% endif %}",
    "{% if (n > 3) != yes %}x{% else %}y{% endif %}",
    "{%- set first = true -%}{%- for x in nums -%}{%- if not first -%},{%- endif -%}{{ x }}{%- set first = false -%}{%- endfor -%}",
    "{% set s = '' %}{% for x in nums %}{% set s = s ~ x %}{% endfor %}[{{ s }}]",
    "{% set ns = namespace(out=[]) %}{% for x in nums %}{% set ns.out = ns.out + [x * 2] %}{% endfor %}{{ ns.out }}",
    "{{ 'a'\n~\n'b' }}",
    "{% set x = {\n 'a': 1,\n 'b': 2\n} %}{{ x.b }}",
    "{{ \"multi\nline\" }}",
    "{% for x in nums %}{% if loop.first %}[{% endif %}{{ x }}{% if loop.last %}]{% endif %}{% endfor %}",
    "{% for x in nums %}{% with y = x * 2 %}{% if y > 4 %}{% continue %}{% endif %}{{ y }} {% endwith %}{% endfor %}",
    "{% macro f(t, k='z') -%}\n  {{ t }}{{ k }}\n{%- endmacro %}\n[{{ f('q') }}]",
    "{% set f = namespace(v=false) %}{% for u in users %}{% if u.on and not f.v %}{{ u.name }}{% set f.v = true %}{% endif %}{% endfor %}",
    "{% for u in users if u.on and u.age > 20 %}{{ u.name }}{{ ', ' if not loop.last else '.' }}{% endfor %}",
    "{{ users | map(attribute='name') | unique | sort(reverse=true) | join(' > ') }}",
    "{% for k in [1] %}{% for j in [2] %}{% set n = j %}{% endfor %}{{ n }}{% endfor %}",
    "{{ d.c.x | map('string') | join('+') ~ '=' ~ d.c.x | sum }}",
    "{% if missing.x is defined %}a{% else %}b{% endif %}",
    "{% if d.missing.x is defined %}a{% else %}b{% endif %}",
    "{% if d.missing is defined and d.missing.x %}a{% else %}b{% endif %}",
    "{% if none is defined %}a{% endif %}",
    "{{ text.split(', ')[1] | upper }}",
    "{{ text.split('</think>')[-1].lstrip('\\n') }}",
    "{{ (text ~ '!').split(',')[0].rstrip().endswith('lo') }}",
    "{% if text is string %}{{ text }}{% else %}{% for p in text %}{{ p.text }}{% endfor %}{% endif %}",
    "{%- for x in nums %}{{- x }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}",
]

SOURCES = ["{{ " + expression + " }}" for expression in EXPRESSIONS] + STATEMENTS

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a place — now", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "City <name> & 'state'"},
                                         "days": {"type": "array", "items": {"type": "integer"}},
                                         "unit": {"type": ["string", "number"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}}},
]
USER = {"role": "user", "content": "Hi there "}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": " Hello! "}
THOUGHT = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nHello."}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2]}}}]}
CALLS = {"role": "assistant", "content": "Looking.", "tool_calls": CALL["tool_calls"] + [
    {"id": "xyz123def", "type": "function", "function": {"name": "now", "arguments": {}}}]}
RESULT = {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather", "content": "{\"t\": 21.5}"}
RESULT2 = {"role": "tool", "tool_call_id": "xyz123def", "name": "now", "content": "12:00"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]}


def text_arguments(message):
    """The same message with arguments as JSON text, as some templates want them."""
    calls = [{**c, "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}} for c in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def conversations():
    families = ["turbo-mini", "qwen2.5", "qwen3", "llama3", "mistral", "gemma2", "gemma3", "phi3", "phi4", "deepseek-r1", "command-r"]
    with_tools = {"turbo-mini", "qwen2.5", "qwen3", "llama3", "mistral", "deepseek-r1", "command-r"}
    plain = [[USER], [SYSTEM, USER], [USER, ANSWER, USER], [SYSTEM, USER, ANSWER, {"role": "user", "content": "Größe? 世界 🎉\n\n  ok"}],
             [USER, THOUGHT, USER], [USER, USER], [SYSTEM, USER, THOUGHT]]
    tool_chats = [([SYSTEM, USER], TOOLS), ([USER], TOOLS), ([USER, CALL, RESULT], TOOLS), ([USER, CALL, RESULT, ANSWER, USER], TOOLS),
                  ([USER, CALLS, RESULT, RESULT2], TOOLS), ([USER, CALL, RESULT], None)]
    for family in families:
        base = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
        for messages in plain:
            yield family, {"messages": messages, **base}
        yield family, {"messages": [USER, ANSWER], **base, "add_generation_prompt": False}
        if family in with_tools:
            for messages, tools in tool_chats:
                if family == "deepseek-r1":
                    messages = [text_arguments(m) if "tool_calls" in m else m for m in messages]
                yield family, {"messages": messages, **base, "tools": tools}
        yield family, {"messages": [PARTS], **base}
    for family in ("turbo-mini", "qwen3"):
        for thinking in (True, False):
            yield family, {"messages": [SYSTEM, USER], **base, "enable_thinking": thinking}
            yield family, {"messages": [SYSTEM, USER, text_arguments(CALLS), RESULT, RESULT2, THOUGHT], **base, "tools": TOOLS, "enable_thinking": thinking}
    yield "llama3", {"messages": [SYSTEM, USER], **base, "tools": TOOLS, "tools_in_user_message": False, "date_string": "1 Jan 2025"}
    yield "llama3", {"messages": [SYSTEM], **base, "tools": TOOLS}
    yield "llama3", {"messages": [USER, CALLS], **base}
    yield "mistral", {"messages": [USER, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "id": "x"}]}], **base}
    yield "phi4", {"messages": [{**SYSTEM, "tools": "[]"}, USER], **base}


CONVERSATIONS = list(conversations())
