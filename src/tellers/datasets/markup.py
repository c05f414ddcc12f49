"""Small XML files, such as annotations: elements with their lines, and no entities that unfold into more."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat


@dataclass(eq=False)
class Element:
    """One element: its tag without a namespace, attributes, text, children, and the line it starts on.

    >>> root = read_markup(b"<a><b n='1'>hi</b></a>", Path("x.xml"))
    >>> root.children[0].text, root.find("b").attributes, root.find("c") is None
    ('hi', {'n': '1'}, True)
    """

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def find(self, tag: str) -> "Element | None":
        """Return the first child of this tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def walk(self, tag: str) -> list["Element"]:
        """Return all elements of this tag below, however deep, in the order of the file.

        >>> [one.line for one in read_markup(b"<a><b><b/></b></a>", Path("x.xml")).walk("b")]
        [1, 1]
        """
        found = []
        for child in self.children:
            found += [child, *child.walk(tag)] if child.tag == tag else child.walk(tag)
        return found


def read_markup(content: bytes, path: Path) -> Element:
    """Return the root of a file; entities of its own are refused: a few lines of them can fill a machine.

    >>> read_markup(b"<a><b></a>", Path("x.xml"))
    Traceback (most recent call last):
        ...
    ValueError: x.xml, line 1: expected well-formed XML (mismatched tag).
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    stack: list[Element] = []
    roots: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.rpartition(" ")[2], attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        stack[-1].text += data

    def entity(*_given: Any) -> None:
        raise ValueError(f"{path.name}, line {parser.CurrentLineNumber}: expected no entities of its own.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, entity
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(f"{path.name}, line {error.lineno}: expected well-formed XML ({reason}).") from None
    return roots[0]
