#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/hash.hpp"
#include "support/json_fields.hpp"
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

TEST(JsonFields, WhatIsMissingOrOfAnotherTypeIsAsIfItWereNotThere) {
  const nlohmann::ordered_json json = {{"text", "a"},
                                       {"flag", true},
                                       {"number", 1.5},
                                       {"count", 3},
                                       {"texts", {"a", 1, "b"}},
                                       {"counts", {{"z", 2}, {"a", "x"}, {"b", 1}}},
                                       {"by_number", {{"10", 0.5}, {"1", 0.25}, {"1x", 1}, {"5", "x"}}}};
  EXPECT_EQ(kw::text_of(json, "text"), "a");
  EXPECT_EQ(kw::text_of(json, "flag"), "");
  EXPECT_TRUE(kw::flag_of(json, "flag"));
  EXPECT_FALSE(kw::flag_of(json, "text"));
  EXPECT_EQ(kw::figure_of(json, "number"), 1.5);
  EXPECT_EQ(kw::count_of(json, "count"), 3);
  EXPECT_FALSE(kw::figure_of(json, "text") || kw::count_of(json, "missing"));
  EXPECT_EQ(kw::texts_of(json, "texts"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(kw::texts_of(json, "text").empty() && kw::rows_of(json, "counts").empty());
  EXPECT_EQ(kw::counts_of(json, "counts"), (std::vector<std::pair<std::string, int64_t>>{{"z", 2}, {"b", 1}}));
  EXPECT_EQ(kw::figures_by_number(json, "by_number"), (std::map<int, double>{{1, 0.25}, {10, 0.5}}));
  EXPECT_FALSE(kw::figures_by_number(json, "texts"));
  EXPECT_TRUE(kw::member(nlohmann::ordered_json(), "text").is_null());
}
