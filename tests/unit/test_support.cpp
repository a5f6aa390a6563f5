#include <gtest/gtest.h>

#include "support/hash.hpp"
#include "support/text.hpp"

TEST(Sha256, MatchesTheStandardsVectors) {
  EXPECT_EQ(kw::sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(kw::sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(kw::sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(FormatDouble, AlwaysReadsAsAFloat) {
  EXPECT_EQ(kw::format_double(1), "1.0");
  EXPECT_EQ(kw::format_double(1e-5), "1e-05");
  EXPECT_EQ(kw::format_double(-1.0 / 0.0), "-inf");
}
