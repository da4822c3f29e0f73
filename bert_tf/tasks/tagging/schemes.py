"""How tags mark entities, by the names of the schemes."""

OUTSIDE = "O"

BIO = "bio"
IOB1 = "iob1"
BIOES = "bioes"
# The letters of each scheme.
SCHEMES = {BIO: "BI", IOB1: "BI", BIOES: "BIES"}
