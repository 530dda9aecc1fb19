"""demo"""


def demo() -> None:
    """x"""
