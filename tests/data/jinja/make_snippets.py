#!/usr/bin/env python3
"""Writes snippets.json: what Jinja2 renders for snippets of templates, in the environment that Transformers makes.

  make_snippets.py OUTPUT [--all]

Each entry is [source, text], text null where Jinja2 raises an error. Without --all the combinations of filters, methods,
tests, formats and operators with values are thinned out. Needs jinja2 and transformers from PyPI.
"""
import copy
import itertools
import json
import re
import sys

from transformers.utils import chat_template_utils

VARIABLES = {
    "a": "x", "n": 3, "neg": -7, "f": 2.5, "big": 1e20, "small": 1e-7, "none": None, "yes": True, "no": False,
    "empty": "", "text": " Ab cD ", "long": "the quick brown fox jumps over the lazy dog", "lines": "one\ntwo\r\n\n  four\n",
    "uni": "Stra\u00dfe \u03a3\u0391\u03a3 \u4f60\u597d \U0001f600\u200d", "html": "<a href=\"x\">'&'</a>",
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3]], "nothing": [],
    "map": {"k": "v", "items": 1, "z": None}, "users": [{"r": "u", "t": {"x": 1}}, {"r": "s", "t": {"x": 2}}, {"r": "S"}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1}}}]}],
}


def filter_cases():
    values = ["a", "n", "neg", "f", "big", "none", "yes", "empty", "text", "lines", "uni", "html", "list", "words",
              "nested", "nothing", "map", "missing", "users", "(1, 'b')", "range(3)", "words|map('upper')", "small"]
    filters = ["abs", "batch(2)|list", "batch(2, 'x')|list", "capitalize", "center(9)", "count", "d('z')",
               "default('z', true)", "dictsort", "dictsort(true)", "dictsort(by='value')", "e", "escape", "first",
               "float", "float(1.5)", "forceescape", "format(1)", "groupby('r')", "indent", "indent(2, true)",
               "indent('> ', blank=true)", "int", "int(5)", "int(base=16)", "items|list", "join", "join('-')",
               "join('-', 'r')", "last", "length", "list", "lower", "map('upper')|list", "map(attribute='r')|list",
               "map(attribute='t.x', default=0)|list", "max", "max(attribute='r')", "min", "min(case_sensitive=true)",
               "reject('odd')|list", "rejectattr('r')|list", "rejectattr('t', 'defined')|list", "replace('b', 'B')",
               "replace('b', 'B', 1)", "reverse|list", "reverse", "round", "round(1)", "round(-1)", "round(1, 'ceil')",
               "round(method='floor')", "safe", "select|list", "select('string')|list", "selectattr('r', 'eq', 's')|list",
               "selectattr('t')|list", "slice(2)|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
               "sort(attribute='r')|map(attribute='r')|list", "string", "sum", "sum(start=1)", "sum('t.x')", "title",
               "tojson", "tojson(indent=2)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
               "tojson(ensure_ascii=true)", "tojson(indent=0)", "trim", "trim(' A')", "truncate(9)",
               "truncate(9, true, '..')", "unique|list", "unique(true)|list", "upper", "urlencode", "wordcount",
               "filesizeformat", "filesizeformat(true)", "attr('upper')", "attr('k')", "upper|lower|title"]
    return [f"{{{{ {v}|{f} }}}}" for v in values for f in filters]


def method_cases():
    texts = ["a", "text", "long", "lines", "uni", "'a,b,,c'", "'--x--'", "'12'", "'-5'", "''", "'\\u00b2'", "'Ab Cd'", "'a\\tb'",
             "'\\u0130\\ufb01'", "(html|safe)"]
    methods = ["capitalize()", "casefold()", "center(9)", "center(10, '*')", "count('o')", "count('o', 5)", "count('')",
               "endswith('x')", "endswith(('g', 'x'))", "expandtabs()", "expandtabs(4)", "find('b')", "find('o', 14)",
               "find('o', 1, 3)", "index('b')", "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()",
               "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()", "join(words)",
               "join(list)", "ljust(8, '.')", "lower()", "lstrip()", "lstrip(' -')", "partition(',')", "partition('x')",
               "removeprefix('-')", "removeprefix('the ')", "removesuffix('-')", "replace('o', '0', 2)", "replace('', '.')",
               "rfind('o')", "rindex('b')", "rjust(8)", "rpartition(',')", "rpartition('o')", "rsplit()", "rsplit(',', 1)",
               "rsplit(None, 1)", "rsplit(' ')", "rstrip()", "rstrip('-')", "split()", "split(',')", "split(',', 1)",
               "split(None, 2)", "split(maxsplit=1)", "splitlines()", "splitlines(true)", "startswith('t')",
               "startswith(('x', '-'))", "startswith('q', 4)", "strip()", "strip('-')", "swapcase()", "title()",
               "upper()", "zfill(5)", "encode()", "nope()", "format(1, b=2)"]
    cases = [f"{{{{ {t}.{m} }}}}" for t in texts for m in methods]
    for v in ["list", "words", "nothing", "(1, 2, 1)", "map", "{1: 'a', 'b': 2}", "range(4)", "n", "none", "missing", "f"]:
        for m in ["count(1)", "index(1)", "index(9)", "copy()", "append(1)", "get('k')", "get(1)", "get('q', 'd')", "items()",
                  "keys()", "values()", "pop()", "items()|list", "keys()|list", "values()|list|tojson", "update({})"]:
            cases.append(f"{{{{ {v}.{m} }}}}")
    return cases


def operator_cases():
    values = ["n", "neg", "f", "big", "a", "none", "yes", "list", "(1, 2)", "map", "missing", "0", "'%s!'", "[0]", "1e20", "0.5"]
    operators = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
    return [f"{{{{ {x} {o} {y} }}}}" for x, y in itertools.product(values, values) for o in operators
            if not (o == "**" and ("big" in (x, y) or y in ("big", "1e20") or x == "1e20"))]


def test_cases():
    values = ["a", "n", "neg", "f", "none", "yes", "empty", "list", "map", "missing", "(1,)", "range(2)",
              "words|map('upper')", "'AB'", "html|safe", "map.get", "map.keys()", "map.items", "a.upper", "map.k", "namespace(q=1)"]
    tests = ["boolean", "callable", "defined", "divisibleby 3", "divisibleby(2)", "eq 3", "equalto('x')", "escaped", "even",
             "false", "filter", "float", "ge 3", "greaterthan 2", "gt 2", "in [3, 'x']", "in 'xyz'", "integer", "iterable",
             "le 3", "lessthan 9", "lower", "lt 9", "mapping", "ne 3", "none", "number", "odd", "sameas none", "sameas true",
             "sequence", "string", "test", "true", "undefined", "upper", "not none", "not in list"]
    return [f"{{{{ {v} is {t} }}}}" for v in values for t in tests]


FORMATS = ["%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%#x", "%X", "%o", "%e", "%.2e", "%f", "%.3f", "%8.2f|", "%-8.2f|",
           "%08.2f", "%g", "%.3g", "%G", "%s", "%10s|", "%-10s|", "%.2s", "%r", "%a", "%c", "%%", "%i", "%u", "%.5d", "%#o",
           "%(k)s", "%s %s", "%", "%q", "%*d", "%ld"]
SPECS = ["", "5", "<5", ">5", "^5", "*^7", "05", "+", " ", "d", "5d", "05d", "x", "#x", "#010x", "b", "o", "e", ".2e", "f", ".2f",
         "8.3f", "<8.1f", "g", ".3g", "%", ".1%", ",", ",.2f", "_", "s", "5s", ".1s", "n", "c", "=5", "010,", "_x", "#b", "G"]


def format_cases():
    values = ["n", "neg", "f", "big", "a", "none", "yes", "list", "uni", "(1, 2)", "map", "0", "1234567", "1234.5678", "(html|safe)"]
    cases = [f"{{{{ '{f}' % {v} }}}}" for f in FORMATS for v in values]
    cases += [f"{{{{ '{f}'|format({v}) }}}}" for f in FORMATS for v in values[:7]]
    cases += [f"{{{{ '[{{:{s}}}]'.format({v}) }}}}" for s in SPECS for v in values]
    return cases + ["{{ '{} {}'.format(1, 2) }}", "{{ '{1} {0}'.format(1, 2) }}", "{{ '{x} {y!r}'.format(x=1, y='z') }}",
                    "{{ '{0[k]} {1[0]} {2.k}'.format(map, list, map) }}", "{{ '{{}}'.format(1) }}", "{{ '{:{}}|'.format('a', 5) }}",
                    "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{} {0}'.format(1) }}", "{{ '{!s:>4}'.format(1) }}",
                    "{{ '%s and %s'|format('a', 'b') }}", "{{ '%(x)s'|format(x=1) }}", "{{ ('<%s>'|safe)|format(html) }}",
                    "{{ '%s' % (1,) }}", "{{ '%s %s' % (1, 'b') }}", "{{ '%(a)d %(b)s' % {'a': 1, 'b': 2} }}"]


STATEMENTS = [
    # numbers and strings as they are written
    "{{ 1e20 }} {{ 1.5e-7 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1e5 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }}",
    "{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1/3 }} {{ 2.0 * 3 }} {{ 1e22 }} {{ 123456789.123456789 }} {{ -0.0 }} {{ 5 // 0.3 }}",
    "{{ '\\x41\\u00e9\\101\\n\\'' }}{{ \"a\\\"b\" }}{{ '\\q' }}", "{{ 'a' 'b' \"c\" }}", "{{ 'a' ~ 1 ~ none ~ [1] ~ missing }}",
    "{{ 007 }}", "{{ 1if yes else 2 }}", "{{ 9223372036854775807 }}", "{{ [1.0, 1e100, 1e-5, -1.5] }}",
    # sequences and mappings
    "{{ () }} {{ (1,) }} {{ (1, 'a') }} {{ 1, 2 }} {{ 1, }} {{ [(1, 2), [3]] }}", "{{ {1: 'a', none: 2, true: 3, 1.5: 4, 'x': 5} }}",
    "{{ {1: 'a', 1.0: 'b', true: 'c'} }}", "{{ {1: 'a'}[1] }}{{ {1: 'a'}['1'] }}{{ {(1, 2): 'a'}[1, 2] }}{{ {none: 1}[none] }}",
    "{{ {1: 'a', 2.5: true, none: 0, false: 1}|tojson }}", "{{ {[1]: 2} }}", "{{ {'a': 1, 'a': 2} }}", "{{ [0] * 3 }} {{ 2 * (1, 2) }} {{ [1] * 0 }} {{ [1] * -1 }}",
    "{{ 2 in {2: 1} }}{{ '2' in {2: 1} }}{{ none in {none: 1} }}", "{% for k in {1: 2, 'a': 3} %}{{ k }}{% endfor %}",
    "{% for k, v in {1: 2, 'a': 3}.items() %}{{ k }}={{ v }};{% endfor %}", "{{ dict([('a', 1), (2, 3)], b=4) }} {{ dict({'x': 1}, y=2) }} {{ dict() }}",
    "{{ map.items() }} {{ map.keys() }} {{ map.values() }}", "{{ map.keys()[0] }}|{{ (list|map('string'))[0] }}|{{ range(5)[1] }}|{{ range(5)[1:3]|list }}",
    "{{ map.items() | length }} {{ map.keys() | list }} {{ 'k' in map.keys() }}", "{{ list[0] }}{{ list[-1] }}{{ list[9] }}{{ list['a'] }}{{ list[1:] }}{{ list[::-1] }}{{ list[:-1] }}{{ (1, 2, 3)[1:] }}",
    "{{ [1, 2] < [1, 3] }}{{ (1, 2) < (1, 2, 0) }}{{ [1] == (1,) }}{{ (1, 2) == (1, 2) }}{{ [2] > [1, 5] }}", "{{ [1] < (1,) }}",
    "{{ 'a' < 'B' }}{{ 'a' < 'b' < 'c' }}{{ 1 < 2 > 1 }}{{ none == false }}{{ 0 == false }}{{ '1' == 1 }}", "{{ none < 1 }}", "{{ missing < 1 }}",
    "{{ map['items'] }} {{ map.k }} {{ map['k'] }} {{ map.nope }} {{ map.z }}", "{{ 'yes' if map.items else 'no' }}", "{{ map.nope.x }}",
    "{{ users|map(attribute='items')|list|length }}", "{{ users|selectattr('t.x', 'gt', 1)|list }}", "{{ [map]|map(attribute='items')|list }}",
    "{{ nested|map('first')|list }} {{ nested|sum(start=[]) }} {{ nested|map('sum')|join(',') }}", "{{ users|map(attribute='t')|select('defined')|list|length }}",
    "{{ none|select|list }}{{ none|selectattr('x')|list }}{{ none|map('upper')|list }}{{ none|map(attribute='x')|list }}{{ 0|reject|list }}", "{{ none|list }}", "{{ 5|select|list }}",
    "{% if list|select('gt', 9) %}always{% endif %}", "{% set g = words|map('upper') %}{{ g|join }}{{ g|join }}|", "{% set g = words|map('upper') %}{{ g|first }}{{ g|list }}",
    "{{ words|map('upper')|length }}", "{{ words|map('upper')|last }}", "{{ words|reverse|first }}{{ words|reverse|list }}{{ 'abc'|reverse }}", "{{ words|unique|join(',') }}",
    "{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}]|sort(attribute='a,b') }}", "{{ [none, 1]|sort }}", "{{ ['b', 'A']|sort|join }} {{ ['b', 'A']|sort(case_sensitive=true)|join }}",
    "{{ users[:2]|groupby('r') }}{% for g in users[:2]|groupby('r') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}{% for k, v in users[:2]|groupby('r') %}{{ k }}{% endfor %}",
    "{{ [1, 2, 3]|sum }} {{ [1.5, 2]|sum }} {{ []|sum }} {{ [3, 1]|min }} {{ [3, 1]|max }} {{ []|max }} {{ ['b', 'A']|min }} {{ users|map(attribute='r')|max }}",
    "{{ 42.55|round }} {{ 42.55|round(1) }} {{ 42|round }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ -2.5|round }} {{ 1234.5|round(-2) }} {{ 42.55|round|int }}",
    "{{ '0x1A'|int(0, 16) }} {{ '1_0'|int }} {{ ' 5 '|int }} {{ '1e3'|int }} {{ '-3.7'|int }} {{ 'inf'|int(7) }} {{ '1e3'|float }} {{ 'nan'|float }} {{ '+2'|float }} {{ none|int }} {{ true|int }}",
    # scopes
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with q = 1, r = 2 %}{{ q }}{{ r }}{% endwith %}{{ q }}", "{% set q = 5 %}{% with q = 1, r = q %}{{ q }}{{ r }}{% endwith %}{{ q }}",
    "{% with (p, q) = (1, 2) %}{{ p }}{{ q }}{% endwith %}", "{% set (p, (q, r)) = (1, (2, 3)) %}{{ p }}{{ q }}{{ r }}", "{% set p, q = 'ab' %}{{ p }}-{{ q }}", "{% set p, q = [1] %}",
    "{% for i, (j, k) in [(1, (2, 3))] %}{{ i }}{{ j }}{{ k }}{% endfor %}", "{% for p, q in ['ab', 'cd'] %}{{ q }}{{ p }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% set x = 0 %}{% for i in list %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{% set ns.c, q = 3, 4 %}{{ ns.c }}{{ q }}{{ ns['a'] }}", "{% set ns = namespace(_x=1) %}", "{% set map.k = 1 %}",
    "{% set ns = namespace() %}{% set ns.x %}y{% endset %}{{ ns.x }}", "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}", "{% if no %}{% set a = 1 %}{% endif %}{{ a }}",
    "{% set x %}a{% endset %}{% set y | upper | trim %} {{ x }}b {% endset %}{{ y }}", "{% filter upper %}a{{ a }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aca{% endfilter %}",
    "{% block one %}[{{ a }}]{% endblock %}", "{% block one %}{% set q = 1 %}{{ q }}{% endblock one %}{{ q }}",
    # macros
    "{% macro m(p, q='d') %}{{ p }}{{ q }}{{ a }}{% endmacro %}{{ m(1) }}{{ m(p=2, q=3) }}{{ m() }}", "{% macro m(p) %}{{ p }}|{{ varargs }}|{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}{{ m() }}",
    "{% macro m(p) %}{{ p }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(p) %}{{ p }}{% endmacro %}{{ m(z=2) }}", "{% macro m(*p) %}{% endmacro %}",
    "{% macro m(x, y, z=3) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, **{'y': 5, 'z': 6}) }}{{ m(*(1,), **{'y': 2}) }}{{ m(1, y=2, **{'z': 9}) }}",
    "{{ range(*[1, 5, 2])|list }}{{ dict(**{'a': 1}) }}{{ 'a,b'.split(*[',']) }}{{ [3, 1]|sort(*[true]) }}{{ [3, 1]|sort(**{'reverse': true}) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ a }}{% endcall %}", "{% macro m(l) %}{% for x in l %}{{ caller(x, y=2) }};{% endfor %}{% endmacro %}{% call(x, y=0) m(list) %}{{ x }}{{ y }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}", "{% macro m() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}",
    "{% for i in list %}{% macro m(x) %}{{ x }}{{ i }}{% endmacro %}{{ m('v') }}{% endfor %}", "{% macro o(x) %}{% macro i(y) %}{{ x }}{{ y }}{% endmacro %}{{ i(1) }}{{ i(2) }}{% endmacro %}{{ o('a') }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro m(p, q=p) %}{{ q }}{% endmacro %}{{ m(1) }}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m.name }}",
    "{% for i in [1] %}{% macro m() %}{{ loop is defined }}{% endmacro %}{{ m() }}{% endfor %}",
    # loops
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in list %}{% for y in list %}{{ loop.depth }}{% endfor %}{% endfor %}", "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}d{{ loop.depth0 }}{% endif %}{% endfor %}", "{% for x in list %}{{ loop(x) }}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.length }}{{ x }}{% else %}e{% endfor %}", "{% for x in nothing %}{% else %}e{% endfor %}", "{% for x in missing %}{% else %}e{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ loop.nextitem }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{{ loop }}", "{% break %}",
    "{% for c in 'h\u00e9\U0001f600' %}{{ c }}.{% endfor %}", "{% for k in map %}{{ k }}{% endfor %}", "{% for x in list %}{% for y in nested %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in words|map('upper') %}{{ loop.last }}{{ loop.length }}{% endfor %}", "{% for x in list %}{% set l = loop %}{{ l.index }}{% endfor %}", "{% for x in [1] %}{{ x }}{% endfor %}{{ x }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set j = joiner('; ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}",
    # markup
    "{{ html|safe }}{{ html|e }}{{ html }}", "{{ ('<b>'|safe) + html }}|{{ html + ('<b>'|safe) }}|{{ ('<b>'|safe) ~ html }}", "{{ ('<b>'|safe)|e }}{{ ('<b>'|safe)|forceescape }}{{ (html|e)|e }}",
    "{{ ['<', '<'|safe] }}{{ ['<', '<'|safe]|join('>') }}", "{{ ('<%s>'|safe) % html }}{{ ('-'|safe).join(['<', '>'|safe]) }}{{ ('a<'|safe).replace('a', '<') }}", "{{ ('<b>'|safe)[0] }}{{ [('<b>'|safe)[0:1]] }}{{ ('<b>'|safe) * 2 }}", "{{ ('<b>'|safe)|upper }}{{ ('<b>'|safe) is string }}{{ ('a'|safe) == 'a' }}{{ ('<'|safe)|tojson }}",
    # undefined and attributes
    "{{ missing }}|{{ missing|upper }}|{{ missing|length }}|{{ missing|list }}|{{ missing is defined }}|{{ missing == missing2 }}|{{ 'a' in missing }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ -missing }}", "{{ missing ~ 'a' }}", "{{ none.x }}|{{ (5).x }}|{{ 'a'.x }}",
    "{{ a.upper is defined }}{{ a.nope is defined }}{{ map.get is defined }}{{ list.append is defined }}{{ list.count is defined }}{{ map.items is callable }}", "{% set f = a.upper %}{{ f() }}{% set g = map.get %}{{ g('k') }}", "{{ a.__class__ }}|{{ a['__class__'] }}", "{{ 'abc'['upper']() }}", "{{ map['get']('k') }}",
    "{{ yes and a or n }}{{ no or none }}{{ not a }}{{ not missing }}", "{{ a if missing }}|{{ a if yes }}|{{ (a if no) is defined }}", "{{ 1 if no else 2 if no else 3 }}", "{{ not 1 == 2 }}{{ not 1 in list }}{{ 1 not in list }}",
    "{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -n|abs }} {{ 7 // 2 * 2 }} {{ 1 + 2 ~ 3 }} {{ 'a' ~ 1 + 2 }} {{ 10 - 3 - 2 }} {{ 2 * 3 % 4 }}", "{{ 'a' is string and n is number }}{{ (n is odd) if yes else 2 }}", "{{ n is divisibleby 3 }}{{ n is not none }}{{ a is in ['x'] }}",
    "{{ text.strip().lower().split(' ')[0] }}", "{{ (text|trim).upper() }}{{ text|trim|upper }}", "{{ a|default('b')|upper ~ 'c' }}", "{{ [1, 2, 3][1] }}{{ 'abc'[1] }}{{ {'a': 1}.a }}{{ (1, 2).0 }}", "{{ list|length > 2 }}{{ (list|length) + 1 }}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a {%- if yes -%} b {%- endif -%} c", "a\n  {%+ if yes %}\n b\n{% endif +%}\nc", "a\n {# c #}\n b {#- d -#} e", "  {{ a }}  \n", "{%- set x = 1 -%}\n x", "{% raw %}{{ a }}{% endraw %}", "a {%- raw -%} {% x %} {%- endraw -%} b", "\n\n{% if yes %}\n\nx\n\n{% endif %}\n\n", "x\r\ny\rz\n", "{% for x in list %}\n  {{ x }}\n{% endfor %}\n", "{{ a -}}\n b", "\t{% if yes %}\tx{% endif %}\t\n", "a\n  {%- if yes %}\n b{% endif %}",
    "{% if yes %}\n  {{- a }}\n{%- endif %}", "{#- x -#}\n{% set q = 1 %}\n{{ q }}\n", "{{ '{{' }}{{ '%}' }}", "{% set x = {'a': {'b': 1}} %}{{ x.a.b }}{{ {'a': {}} }}", "{{- '\n' -}}", "  {%- for x in list %} {{ x }} {%- endfor %}  ",
    "{% autoescape true %}{{ html }}{% endautoescape %}", "{% include 'x' %}", "{% do list.append(1) %}", "{% import 'x' as y %}", "{{ a | nope }}", "{{ a is nope }}", "{{ nope() }}", "{{ a b }}", "{% if %}", "{% endif %}", "{{ a", "{{ 'a }}", "{% for x %}{% endfor %}", "{% set %}", "{{ }}", "{% if a %}", "{{ raise_exception('no') }}", "{{ lipsum() is string }}",
    "{% for m in messages %}{% if m.role == 'user' %}{{ m['content'] }}{% elif m.tool_calls is defined and m.tool_calls %}{% for t in m.tool_calls %}{{ t.function.name }}{{ t.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{{ messages|map(attribute='role')|join(',') }} {{ (messages|selectattr('role', 'equalto', 'user')|list)[0].content }} {{ messages[1:]|length }} {{ messages[-1].tool_calls[0]['function']['arguments'].items()|list }}",
    "{{ uni|upper }} {{ uni|lower }} {{ uni|title }} {{ uni|capitalize }} {{ uni|length }} {{ uni[::-1] }} {{ [uni] }} {{ uni|tojson }}", "{{ ['\\x00\\x7f\\u00a0\\u00ad\\u2028\\ue000'] }}", "{{ 'it\\'s a-b (c'|title }} {{ 'it\\'s a-b (c'.title() }}",
]


# Refused by name: integers beyond 64 bits, complex numbers, bytes, escaping by default, random text, formats of
# characters, and texts of ranges, iterators, methods and namespaces.
REFUSED = ("big|int", ".encode()", "autoescape", "lipsum", "'%c'", "{:c}", "% missing", "neg ** ", "is filter", "is test")
REFUSED_TEXT = re.compile(r"%[^%]*[diu]\|?'( % |\|format\()big|(\.get|\.items|\.upper|\(q=1\)) is (lower|upper)")
TEXT_OF_RANGE = re.compile(r"(range\(\d\)|map\('upper'\))( is (lower|upper) |\|(capitalize|center|d\(|default|e |escape|"
                           r"forceescape|format|lower|replace|safe|string|title|trim|truncate|upper|wordcount|urlencode))")


def main():
    environment = chat_template_utils._compile_jinja_template("").environment
    combined = [*filter_cases(), *method_cases(), *test_cases(), *format_cases(), *operator_cases()]
    step = 1 if "--all" in sys.argv else 7
    rows = []
    for source in dict.fromkeys(STATEMENTS + combined[::step]):
        if any(refused in source for refused in REFUSED) or TEXT_OF_RANGE.search(source) \
                or REFUSED_TEXT.search(source):
            continue
        try:
            text = environment.from_string(source).render(**copy.deepcopy(VARIABLES))
        except Exception:
            text = None
        if text is None or " at 0x" not in text:
            rows.append([source, text])
    with open(sys.argv[1], "w") as out:
        out.write(json.dumps({"variables": VARIABLES}) [:-1] + ',\n"snippets": [\n')
        out.write(",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    print(f"{len(rows)} snippets, {sum(text is None for _, text in rows)} of them errors")


if __name__ == "__main__":
    main()
