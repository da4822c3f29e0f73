"""A terminal in memory, and what one would see on it."""

import io


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True

    def lines(self):
        """Returns the lines that stand on the screen, without their ends."""
        rows, row, column = [""], 0, 0
        text = self.getvalue().replace("\x1b[K", "\v")
        for character in text:
            if character == "\r":
                column = 0
            elif character == "\n":
                row, column = row + 1, 0
                rows += [""] * (row == len(rows))
            elif character == "\v":
                rows[row] = rows[row][:column]
            else:
                line = rows[row].ljust(column)
                rows[row] = line[:column] + character + line[column + 1 :]
                column += 1
        return [line.rstrip() for line in rows]
