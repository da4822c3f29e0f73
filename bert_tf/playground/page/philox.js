// Philox4x32-10, as in bert_tf/philox.py: 128 random bits as a function of a
// counter of four words and a key of two. Words are numbers in [0, 2**32).

// The high word of the product of two words, computed in halves of 16 bits.
function highWord(a, b) {
  const aLow = a & 0xffff, aHigh = a >>> 16;
  const bLow = b & 0xffff, bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + (middle >>> 16) + (other >>> 16)) >>> 0;
}

function philox(c0, c1, c2, c3, k0, k1) {
  for (let round = 0; round < 10; round += 1) {
    const high0 = highWord(c0, 0xd2511f53), low0 = Math.imul(c0, 0xd2511f53);
    const high1 = highWord(c2, 0xcd9e8d57), low1 = Math.imul(c2, 0xcd9e8d57);
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1 >>> 0;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0 >>> 0;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}
