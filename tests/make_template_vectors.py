#!/usr/bin/env python3
"""Writes tests/data/templates/vectors.json: templates and what Jinja makes of them, in the environment that the
transformers library renders chat templates with. Needs jinja2 (3.1)."""
import datetime
import json
import pathlib
import random

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2031, 3, 14, 9, 26, 53)

VARIABLES = json.loads(r"""{
  "s": "Hello, World",
  "u": "Straße ÀÉ ǆ 日本 👩‍💻 ﬁ",
  "n": 7,
  "f": 2.5,
  "neg": -3,
  "big": 18446744073709551615,
  "t": true,
  "no": null,
  "e": "",
  "l": [3, 1, 2],
  "d": {"b": 1, "a": "x", "C": [1, {"k": null}]},
  "nested": [{"name": "Bob", "age": 30, "tags": ["x", "y"]}, {"name": "alice", "age": 25, "tags": []}, {"name": "Carl", "age": 30}],
  "multi": "line one\n  two\r\n\nthree\t|",
  "quotes": "it's \"q\" \\ \u0007",
  "html": "<a href='x'>&</a>",
  "x": "ctx",
  "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}, {"v": 5, "c": []}],
  "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}]
}""")

# Expressions, three spaces apart. Each is rendered as {{ expression }}.
EXPRESSIONS = r"""
# values and attributes
s   u   n   f   neg   big   t   no   e   l   d   nested   missing   missing.x   s.missing   l[0]   l[-1]   l[5]
l['x']   d.b   d['b']   d.items   d.zzz   s[0]   s[-1]   s[1:4]   s[::-1]   s[::2]   l[::-1]   l[1:]   l[:-1]
u[2:9]   u[::-1]
# numbers
1+1   1-2   2*3   7/2   7//2   -7//2   7%3   -7%3   7%-3   2**10   2**-1   2**0.5   1.5+1   7.5//2   -7.5//2
-7.5%2   7.5%-2   1e300*1e10   0.1+0.2   1/3   1e16   1e15   123456789012345678   1e-5   0.0001   1.0   100.0   1e22
1.5e-7   5e-324   -0.0   3.0*2   10**20   -2**2   2**3**2   1_000   0x1F   0b101   0o17   1_0.5e1_0
# operators
s+e   s~n~f~t~no~l~d~missing   s*2   2*s   l*2   l+l   s+1   1+s   [1]+(2,)   (1,)+(2,3)   no+1   missing+1   -s
t+t   t*5   -t   +f
# comparison
1==1.0   1==true   true==1   'a'=='a'   l==[3,1,2]   (1,)==[1]   no==none   missing==missing   missing==none   d==d
{'a':1}=={'a':1.0}   1<2   1<2<3   1<3<2   'a'<'b'   'Z'<'a'   [1,2]<[1,3]   1<'a'   no<1   missing<1   1!=2   1>=1
f>2   f<=2.5
# logic and membership
'a'in'abc'   1 in l   3 in l   'b' in d   'z' not in d   1 in 'a'   missing in l   missing in 'abc'   'x' in missing
2 in range(5)   'lo' in s
# filters of text and sequences
t and n   n or s   no or e   e and x   not t   not no   not missing   no or missing or 3   (s if no else n)
(s if no)   (s if t)
# filters of numbers, escapes and other
s|upper   s|lower   s|title   u|upper   u|lower   u|title   s|capitalize   u|capitalize   s|length   u|length
l|length   d|length   n|length   no|length   missing|length   e|length   s|trim   multi|trim   multi|indent
multi|indent(2,true)   multi|indent(2,true,true)   multi|indent('>>')   s|replace('l','L')   s|replace('l','L',1)
s|replace('','-')   l|join   l|join(',')   l|join(s)   d|join('-')   s|join('.')   nested|join('/',attribute='name')
nested|map(attribute='name')|list   nested|map(attribute='tags.0')|list
nested|map(attribute='tags.0',default='?')|list   l|map('string')|list   l|map('upper')|join   no|map('upper')|list
l|select('odd')|list   l|reject('odd')|list   l|select|list
nested|selectattr('age','equalto',30)|map(attribute='name')|list   nested|rejectattr('tags')|list
nested|selectattr('tags','defined')|list|length   nested|selectattr('age','gt',26)|list|length
nested|groupby('age')   nested|groupby('name')|map(attribute='grouper')|list
nested|groupby('age')|map('first')|list   nested|sort(attribute='name')|map(attribute='name')|list
nested|sort(attribute='age,name')|map(attribute='name')|list
nested|sort(attribute='age',reverse=true)|map(attribute='name')|list   l|sort   ['b','A','a','B']|sort
['b','A','a','B']|sort(case_sensitive=true)   [1,'a']|sort   d|dictsort   d|dictsort(true)
{'a':2,'b':1}|dictsort(by='value')   d|dictsort(reverse=true)   d|items|list   d.items()|list   d|list
d.keys()|list   d.values()|list   missing|items|list   d.items()   d.keys()   d.values()   l|first   l|last
e|first   []   []|first   []|last   s|first   s|last   d|first   l|min   l|max   []|max
nested|max(attribute='age')   ['a','B']|max   l|sum   nested|sum(attribute='age')   l|sum(start=10)   ['a']|sum
l|unique|list   ['a','A','b']|unique|list   l|reverse|list   s|reverse   d|reverse|list   l|batch(2)|list
l|batch(2,'x')|list   l|slice(2)|list   l|slice(4,'x')|list
# tojson
n|abs   neg|abs   f|abs   s|abs   f|round   2.675|round(2)   0.5|round   1.5|round   2.5|round   n|round(2)
1234.5|round(-2)   1250|round(-2)   1350|round(-2)   f|round(0,'ceil')   f|round(0,'floor')   42.555|round(2,'ceil')
'42'|int   '4x'|int   '4.7'|int   4.7|int   no|int   '0x1f'|int(base=16)   'ff'|int(0,16)   'zz'|int(5)   '   12
'|int   '1_000'|int   '1e3'|int   'inf'|int   t|int   l|int   missing|int   missing|float   '3.5'|float
'abc'|float   'nan'|float   '1e3'|float   n|float   no|float(1.5)   ''|float   s|string   n|string   no|string
l|string   missing|string   html|e   html|escape   html|safe   (html|safe)+'<'   '<'+(html|safe)   (html|safe)~'<'
html|safe|e   html|safe|forceescape   html|e|upper   [html|safe]   s|wordcount   u|wordcount   multi|wordcount
s|center(20)   s|center(21)   s|center(5)   s|truncate(8)   s|truncate(8,true)   s|truncate(5,true,'..',0)
s|format   '%s-%d'|format('a',3)   '%(a)s'|format(a=1)   html|urlencode   d|urlencode   u|urlencode   s|default('x')
missing|default('x')   missing|d   no|default('x')   no|default('x',true)   e|default('y',boolean=true)
s|attr('upper')   d|attr('b')   s|nofilter   s|count
# methods of strings
s|tojson   u|tojson   u|tojson(ensure_ascii=true)   n|tojson   f|tojson   big|tojson   t|tojson   no|tojson
l|tojson   d|tojson   d|tojson(indent=2)   d|tojson(indent=4,sort_keys=true)   d|tojson(separators=(',',':'))
nested|tojson(indent=1)   []|tojson(indent=2)   {}|tojson(indent=2)   [[],{}]|tojson(indent=2)   quotes|tojson
html|tojson   (1,2)|tojson   missing|tojson   {1:2,true:3,none:4,1.5:6}|tojson   {(1,2):3}|tojson
[1.0,1e100,1e-7]|tojson   range(3)|tojson   d|tojson(indent='\t')   d.items()|list|tojson   d|tojson(2)
[missing]|tojson
# methods of containers
s.upper()   s.lower()   s.title()   u.title()   u.capitalize()   u.swapcase()   u.casefold()   s.split()
s.split(',')   s.split('l',1)   s.rsplit('l',1)   multi.split()   multi.split('\n')   multi.splitlines()
multi.splitlines(true)   '_a__b_'.replace('_','__')   '   a   b   c   '.split(None,1)   '   a   b   c
'.rsplit(None,1)   '   a   b   c   '.split(None,0)   '   a   '.rsplit(None,0)   ''.split()   ''.split(',')
'a,b,'.split(',')   'aXbXc'.split('X',-1)   'abc'.split('')   s.strip('Hd')   s.lstrip('He')   s.rstrip('dl')
'\n\tx\u00a0'.strip()   s.startswith('He')   s.startswith(('x','H'))   s.endswith('d')   s.startswith('e',1)
s.endswith('l',0,-1)   s.find('o')   s.find('o',5)   s.rfind('o')   s.find('zz')   s.index('zz')   u.find('日')
s.count('l')   s.count('')   s.count('l',4)   s.replace('l','')   s.replace('l','L',1)   s.join(['a','b'])
'-'.join(l)   '-'.join('abc')   s.partition(',')   s.rpartition('o')   s.partition('zz')   s.rpartition('zz')
s.removeprefix('Hel')   s.removesuffix('ld')   s.ljust(15,'.')   s.rjust(15)|tojson   s.center(15,'*')
s.center(16,'*')   'abcd'.center(7)   '42'.zfill(5)   '-42'.zfill(5)   '+4'.zfill(4)   'a\tb'.expandtabs()
'a\tb'.expandtabs(4)   'abc'.isalpha()   '12'.isdigit()   '²'.isdigit()   '²'.isdecimal()   '½'.isnumeric()
'a1'.isalnum()   '   '.isspace()   ''.isspace()   'Ab   Cd'.istitle()   'abC'.islower()   'ABC1'.isupper()
'é'.isascii()   'ΑΣ   ΣΑΣ'.lower()   s.nomethod()   s.upper.x
# % formatting
d.get('b')   d.get('zz')   d.get('zz',5)   d.get()   d.copy()   l.index(1)   l.index(9)   l.count(1)   l.append(1)
d.update({})   d.pop('b')   l.pop   d.pop   l.sort()   l.copy()   (1,2,1).count(1)   (1,2).index(2)
d.items()|length   (d.items()|list)[0]   'b' in d.keys()   d.keys()|first   l.nomethod   d.a.b.c
# format()
'%s'%s   '%d'%n   '%d'%f   '%5.2f|%-8s|%08.3f'%(f,s,f)   '%x %X %o %#x'%(255,255,8,255)   '%+d % d'%(5,5)
'%e %g %G'%(f,1e10,1e-10)   '%r %s'%('a','a')   '%%'   '%%'%()   '%s'%(1,2)   '%s %s'%1   '%d'%'x'   '%(b)s %(a)s'%d
'%c%c'%('x',65)   '%.3s'%s   '%s'%l   '%s'%(l,)   '%s'%d   '%5s%%'%'a'   '%i'%true   '%s'%no   '%*d'%(5,3)
'%.2f'%1   '%q'%1   'a%'%1
# tests
'{} {}'.format(1,'a')   '{1}{0}'.format(1,2)   '{a}{b}'.format(a=1,b=2)   '{0[b]} {0.b}'.format(d)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1,2,3,4)   '{:05d} {:+} {:,} {: }'.format(42,5,1234567,1234567)
'{:.2f} {:e} {:g} {:%}'.format(f,f,f,f)   '{:x} {:#x} {:b} {:o} {:X}'.format(255,255,5,8,255)
'{!r} {!s}'.format('a','b')   '{{}}'.format()   '{}'.format()   '{0}{}'.format(1,2)   '{:{}}'.format('a',5)
'{:10.3}'.format(s)   '{:d}'.format('a')   '{:s}'.format(1)   '{}'.format(l)   '{:>10}'.format(true)
'{}'.format(no)   '{x}'.format(a=1)   '{'.format()   '}'.format()   '{:.3}'.format(1234.5)   '{:.1f}'.format(3)
'{:010.2f}'.format(-3.14159)   '{:=+8}'.format(5)   '{:c}'.format(65)   '{0.__class__}'.format(1)
'{:,.2f}'.format(1234567.891)   '{:,}'.format(123456.5)
# functions
n is number   f is float   n is integer   t is integer   t is number   t is boolean   s is string   l is string
d is mapping   l is sequence   d is sequence   s is sequence   n is sequence   l is iterable   s is iterable
n is iterable   missing is iterable   missing is sequence   missing is defined   missing is undefined   s is defined
no is none   missing is none   t is true   n is true   no is false   t is sameas true   n is divisibleby 7
n is divisibleby(2)   n is odd   n is even   n is eq 7   n is ne(7)   n is lt 8   n is ge 8   n is in [7]
s is lower   s is upper   'ABC' is upper   html is escaped   (html|safe) is escaped   'upper' is filter
'xx' is filter   'odd' is test   range is callable   s is callable   s is not string   s is not none and t
n is nosuchtest   d.missing is defined   d.b.c is defined   missing.x is defined   s is string and s
n is greaterthan 3   n is lessthan 3   n is equalto 7   not s is string   d.items is callable   l is mapping
(l|map('string')) is iterable   (l|map('string')) is sequence   (l|map('string'))|length   d.items() is sequence
d.items() is iterable   range(2) is sequence   namespace() is mapping   namespace(a=1).a   namespace(a=1).b
namespace(d).b   namespace(a=1)
# literals and their repr
range(5)|list   range(1,10,3)|list   range(5,0,-2)|list   range(0)   range(3)   range(1,7,2)   range(3)[1]
range(10)[2:5]   range(10)[2:5]|list   range(100001)   dict(a=1,b=2)   dict([('x',1)])   dict(d,z=1)|length
dict(1)   strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %B %a %A %j %p %I %y %-d %e %% %U %W %w %c %x %X %D %F %T %R')   strftime_now('%Q')
raise_exception('boom')   raise_exception(1)
# subscripts
[1,[2,(3,)],{'a':(1,)}]   ()   (1,)   (1,2)   {}   {'a':'it\'s'}   ['"',"'"]   quotes   [quotes]   [u]
['\u200b\x00\x7f\xa0\u3042']   [1.0,no,t]   [missing]   {'k':missing}   {1:2}[1]   {true:1}[1]   {[1]:2}
{'a':1,'a':2}   [1,2,]   'a''b'   "a\x41\u0042\n\t\101\q"
# precedence
'abc'[1]   'abc'['upper']()   d['items']   d[1]   d[l]   (1,2)[0]   no.x   no['x']   no[0]   n.x   n[0]   l.0
d.C.1.k   d.C[1]['k']   nested[0].tags.0
# more
s|upper|lower|title   -1|abs   (-1)|abs   -n|abs   2-1|abs   not 1==2   1+2*3   (1+2)*3   1~2+3   1+2~3   'a'~'b'*2
10-3-2   2*3%4   100//3//2   s|length+1   l|length>2   l[0]+l[1]   l[n-7]   1 if t else 2 if no else 3   1,2   t,
"""

# Whole templates, one a line.
STATEMENTS = r"""
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}[{{ loop.previtem }}|{{ loop.nextitem }}]{{ loop.cycle('a','b') }}{{ loop.changed(i) }};{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
{% for c in s %}{{ c }}.{% endfor %}
{% for a, b in [(1,2),(3,4)] %}{{ a+b }} {% endfor %}
{% for a, b in [(1,2,3)] %}{{ a }}{% endfor %}
{% for (a, b), c in [((1,2),3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in no %}{% endfor %}
{% for i in missing %}a{% else %}b{% endfor %}
{% for i in n %}{% endfor %}
{% for n in tree recursive %}{{ n.v }}({{ loop(n.c) }}){{ loop.depth }}{% endfor %}
{% for n in tree %}{{ loop(n.c) }}{% endfor %}
{% set y = 1 %}{% for i in l %}{% set y = y + i %}{{ y }} {% endfor %}{{ y }}
{% set ns = namespace(y=1) %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y }}
{% set x.y = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set a %}<{{ n }}>{% endset %}{{ a }}{{ a|length }}
{% set a | upper | trim %} q{{ s }} {% endset %}{{ a }}
{% if no %}a{% elif n %}b{% else %}c{% endif %}
{% if no %}a{% elif no %}b{% else %}c{% endif %}
{% if missing %}a{% endif %}b
{% if t %}{% set z = 5 %}{% endif %}{{ z }}
{% if no %}{% set x = 5 %}{% endif %}{{ x }}
{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}
{% for i in [1,2] %}{% if i == 2 %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}{{ x }}
{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}
{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1,3) }}|{{ m(1,c=9) }}|{{ m(b=5) }}|{{ m(a=1,b=2,c=3) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,k=4) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in {{ n }}{% endcall %}
{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=5) m() %}{{ a }}-{{ b }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m(caller=5) %}{{ caller }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller }}{% endmacro %}{{ m() }}
{% macro f(n) %}{% if n > 1 %}{{ n }}*{{ f(n-1) }}{% else %}1{% endif %}{% endmacro %}{{ f(5) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ ['a','b']|map('upper')|join }}{{ m('q')|upper }}
{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% filter upper %}abc{{ s }}{% endfilter %}
{% filter replace('a','b')|upper %}banana{% endfilter %}
{% with a=1, b=2 %}{{ a+b }}{% endwith %}{{ a is defined }}
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% with x = 5, y = x %}{{ y }}{% endwith %}
{% raw %}{{ not }} {% if %}{% endraw %}!
{%- raw -%}  {{ x }}  {%- endraw -%}  z
{# comment {{ x }} #}a{#- b -#} c
  {# c #}
x
{% generation %}gen {{ n }}{% endgeneration %}!
{% print 1, 2 %}
{% set x = 5 %}{% generation %}{{ x }}{% set x = 6 %}{% endgeneration %}{{ x }}
{{ 'a' if n == 7 else 'b' }}{{ 'a' if n == 8 }}|
{{ "{{" }}{{ '}}' }}{{ '%}' }}
{{ {'a':{'b':1}}.a.b }}{{ {'a': 1}['a'] }}{{ {}}}
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}
{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}{% endfor %}
{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('bad') }}{% endif %}{% endfor %}ok
{% set loop_messages = messages[1:] %}{{ loop_messages|length }}{{ messages[-1].content }}
{% set xs = l|select('gt', 1) %}{{ xs|list }}{{ xs|list }}
{% set xs = l|map('string') %}{{ xs|first }}{{ xs|join }}
{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for i in range(2) %}{% set outer = loop %}{% for j in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for i in l %}{{ loop.index if loop.first }}{% endfor %}
{% set f = namespace(stop=false) %}{% for m in l if not f.stop %}{{ m }}{% set f.stop = true %}{% endfor %}
{% set f = namespace(stop=false) %}{% for m in l if not f.stop %}{{ m }}{{ loop.last }}{% set f.stop = true %}{% endfor %}
{% for i in l %}{% endfor %}{{ i is defined }}{{ loop is defined }}
{% for i in l|sort %}{{ i }}{% endfor %}{% for i in l|reverse %}{{ i }}{% endfor %}
{% if x is defined and x %}1{% endif %}{% if not (missing is defined) %}2{% endif %}{% if missing is not defined %}3{% endif %}
{% endfor %}
{% if x %}
{% for i in %}{% endfor %}
{{ }}
{{ x
{% set %}
{{ 1 + }}
{{ (1 }}
{{ x | }}
{{ x. }}
{{ 'abc }}
{% unknown %}
{{ f(a=1, 2) }}
{{ f(**d, 1) }}
{{ dict(**d)['a'] }}{{ dict(*[[('q',1)]])['q'] }}
{% break %}
{% macro m() %}{% break %}{% endmacro %}
{% set a = 1 if true else 2 %}{{ a }}{% set b = (1,) %}{{ b }}
{%if n==7%}a{%endif%}{%for i in l%}{{i}}{%endfor%}
{% if n == 7: %}colon{% endif %}{% for i in l: %}{{ i }}{% endfor %}
{{ caller is defined }}{{ varargs is defined }}
{{ not x is defined }}{{ not missing }}{{ -n is number }}
{{ x is defined is defined }}
{{ l is sequence and l is not string }}{{ x in ['ctx'] and not n in l }}
{{ n is divisibleby 7 and t }}{{ 5 is in [5] }}{{ d is mapping or boom }}
{% set d2 = dict(d, c=3) %}{% for k, v in d2|dictsort %}{{ k }}{{ v }}{% endfor %}
{% set q = [] %}{% set q = q + [1] %}{% set q = q + [2] %}{{ q }}
{% set _ = d.update({'z':1}) %}
{% include 'x' %}
{% extends 'x' %}
{% do l.append(1) %}
{{ loop }}
{{ l|map(attribute='x')|list }}{{ [d]|map(attribute='b')|list }}
{% for a in [1,2] %}{% for b in [1,2] if b != a %}{{ a }}{{ b }} {% endfor %}{% endfor %}
{% for i in l recursive %}{{ i }}{% if i > 1 %}{{ loop([i-1]) }}{% endif %}{% else %}E{% endfor %}
{% set a = namespace(**d) %}{{ a.b }}{% set a = namespace(d, q=2) %}{{ a.q }}{{ a.a }}
{% macro a(x) %}<{{ x }}>{% endmacro %}{% macro b(y) %}{{ a(y) ~ a(y|upper) }}{% endmacro %}{{ b('k') }}
{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% set i = 9 %}{% macro m() %}{{ i }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}
{% set s2 %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ s2 }}
{% if t %}{% macro m() %}M{% endmacro %}{% endif %}{{ m() }}
{% for x in l %}{{ x }}{% endfor %}{{ x }}
{% with x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% endwith %}{{ x }}
{% set z %}{% set z = 1 %}{{ z }}{% endset %}{{ z }}
{% macro m() %}{% set x = 'in' %}{{ x }}{% endmacro %}{{ m() }}{{ x }}
{% macro m(x) %}{% for x in l %}{{ x }}{% endfor %}{{ x }}{% endmacro %}{{ m(0) }}
"""


class Generation(jinja2.ext.Extension):
    """The tag that marks the assistant's words: renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    extensions = [Generation, jinja2.ext.loopcontrols]
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime)
    return env


def white_space(n):
    """Tags of all kinds with white space between them."""
    rng = random.Random(1)
    gaps = ["", " ", "\n", "  ", "\n  ", "\t", "\n\n", " \n", "x", "\r\n", "\u00a0"]
    signs = ["{% @ %}", "{%- @ %}", "{% @ -%}", "{%- @ -%}", "{%+ @ %}", "{% @ +%}"]
    atoms = ["{{ n }}", "{{- n }}", "{{ n -}}", "{{- n -}}", "{# c #}", "{#- c -#}", "{#+ c +#}", "{# c -#}",
             "{% raw %} {{ r }} {% endraw %}", "{%- raw -%} \n r {%- endraw -%}", "{% raw %}\n  q\n  {%+ endraw +%}",
             "{% raw -%} q{% endraw -%}", "{% set q = 1 %}", "{%- set q = 1 -%}"]

    def gap():
        return "".join(rng.choice(gaps) for _ in range(rng.randint(0, 3)))

    for _ in range(n):
        text = gap()
        for _ in range(rng.randint(1, 4)):
            atom = rng.choice(atoms) + gap()
            if rng.random() < 0.5:
                begin, end = (rng.choice(signs).replace("@", word) for word in ("if t", "endif"))
                atom = begin + gap() + atom + end + gap()
            text += atom
        yield text


def case(env, template):
    try:
        text = env.from_string(template).render(**VARIABLES)
        text.encode()
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"template": template, "raises": str(e)}
        return {"template": template, "fails": True}
    except Exception:
        return {"template": template, "fails": True}
    return {"template": template, "text": text}


def main():
    env = environment()
    lines = [line for line in EXPRESSIONS.strip().split("\n") if not line.startswith("#")]
    templates = ["{{ " + e + " }}" for line in lines for e in line.split("   ") if e]
    templates += STATEMENTS.strip("\n").split("\n") + list(white_space(300))
    cases = [c for c in (case(env, t) for t in templates) if " object at 0x" not in c.get("text", "")]
    out = pathlib.Path(__file__).parent / "data/templates/vectors.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    out.write_text('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"cases": [\n' + body + "\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
