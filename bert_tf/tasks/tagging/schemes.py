"""How tags mark entities, by the names of the schemes."""

OUTSIDE = "O"

BIO = "bio"
IOB1 = "iob1"
BIOES = "bioes"
BILOU = "bilou"
# The letters of each scheme: of an entity's first word and of those inside; and
# if they have their own, of its last word and of an entity of one word.
SCHEMES = {BIO: "BI", IOB1: "BI", BIOES: "BIES", BILOU: "BILU"}
