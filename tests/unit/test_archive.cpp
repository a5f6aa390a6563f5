#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "archive/archive.hpp"
#include "support/error.hpp"

namespace kw {
namespace {

namespace fs = std::filesystem;

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kw-archive-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "deep" / "archive.db";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static ResultKey store_one(Archive& archive, const std::string& source, const std::string& report = "{}") {
    ResultRecord result;
    archive.together([&] {
      result.key.problem = archive.add(ProblemRecord{"example", "/tmp/example.py", source});
      result.key.target = "cpu";
      result.key.policy = "reference";
      result.key.emitter = "1";
      result.key.environment = archive.add_environment(R"({"torch":"2.9"})");
      result.candidate = archive.add_candidate("class ModelNew: # " + source);
      result.verdict = archive.add(
          VerdictRecord{result.key.problem, result.candidate, result.key.environment, "reference", true, "", "{}"});
      result.measurement = archive.add(
          MeasurementRecord{result.key.problem, result.candidate, result.key.environment, "[1.0]"});
      result.report = report;
      archive.add(result);
    });
    return result.key;
  }

  fs::path folder_, path_;
};

TEST_F(ArchiveTest, AnswersTheKeyItStoredAndNoOther) {
  Archive archive(path_);
  const ResultKey key = store_one(archive, "a", R"({"verdict":"pass"})");
  ASSERT_TRUE(archive.find(key).has_value());
  EXPECT_EQ(archive.find(key)->report, R"({"verdict":"pass"})");
  EXPECT_EQ(archive.candidate_source(archive.find(key)->candidate), "class ModelNew: # a");
  for (auto member :
       {&ResultKey::problem, &ResultKey::target, &ResultKey::policy, &ResultKey::emitter, &ResultKey::environment}) {
    ResultKey other = key;
    other.*member += "x";
    EXPECT_FALSE(archive.find(other).has_value());
  }
}

TEST_F(ArchiveTest, LatestResultOfAKeyWins) {
  Archive archive(path_);
  store_one(archive, "a", "1");
  const ResultKey key = store_one(archive, "a", "2");
  EXPECT_EQ(archive.find(key)->report, "2");
  EXPECT_EQ(archive.results().size(), 2u);
}

TEST_F(ArchiveTest, SameContentIsStoredOnce) {
  Archive archive(path_);
  EXPECT_EQ(archive.add_candidate("source"), archive.add_candidate("source"));
  EXPECT_EQ(archive.add(ProblemRecord{"a", "/a.py", "s"}), archive.add(ProblemRecord{"b", "/b.py", "s"}));
}

TEST_F(ArchiveTest, RefusesChangesAndDeletions) {
  {
    Archive archive(path_);
    store_one(archive, "a");
  }
  Database database(path_);
  for (const char* table : {"problems", "candidates", "environments", "verdicts", "measurements", "results"})
    EXPECT_THROW(database.execute(("DELETE FROM " + std::string(table)).c_str()), Error) << table;
  EXPECT_THROW(database.execute("UPDATE verdicts SET passed = 0"), Error);
}

TEST_F(ArchiveTest, FailureInsideATransactionStoresNothing) {
  Archive archive(path_);
  EXPECT_THROW(archive.together([&] {
    archive.add_candidate("half");
    throw Error(ErrorKind::kUser, "stop");
  }),
               Error);
  EXPECT_EQ(archive.candidate_source(archive.add_candidate("other")), "other");
  Database database(path_);
  Statement count(database, "SELECT count(*) FROM candidates");
  ASSERT_TRUE(count.step());
  EXPECT_EQ(count.integer(0), 1);
}

TEST_F(ArchiveTest, FindsAResultByIdAndByHashPrefix) {
  Archive archive(path_);
  const ResultKey key = store_one(archive, "a");
  const std::string candidate = archive.find(key)->candidate;
  EXPECT_TRUE(archive.result("1").has_value());
  EXPECT_TRUE(archive.result(candidate.substr(0, 10)).has_value());
  EXPECT_FALSE(archive.result("").has_value());
  EXPECT_FALSE(archive.result("zzzz").has_value());
}

TEST_F(ArchiveTest, DamagedFileIsReportedAndMovedAsideWhole) {
  fs::create_directories(path_.parent_path());
  std::ofstream(path_) << std::string(8192, 'x');
  try {
    Archive archive(path_);
    FAIL() << "opened a damaged file";
  } catch (const Error& error) {
    EXPECT_EQ(error.text().code, "archive-corrupt");
    EXPECT_EQ(error.exit_code(), 3);
  }
  const std::string aside = move_archive_aside(path_);
  EXPECT_EQ(fs::file_size(aside), 8192u);
  Archive fresh(path_);
  store_one(fresh, "a");
}

TEST_F(ArchiveTest, DamageInsideADatabaseIsReported) {
  {
    Archive archive(path_);
    for (int i = 0; i < 200; ++i)
      archive.add_candidate(std::string(500, static_cast<char>('a' + i % 26)) + std::to_string(i));
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path_) / 2));
    file << std::string(9000, '\xee');
  }
  EXPECT_THROW(Archive archive(path_), Error);
}

TEST_F(ArchiveTest, ASourceThatIsNotTheOneThatWasStoredIsDamage) {
  const std::string source(500, 'a');
  std::string hash;
  {
    Archive archive(path_);
    hash = archive.add_candidate(source);
    EXPECT_EQ(archive.candidate_source(hash), source);
    EXPECT_THROW(archive.candidate_source(std::string(64, '0')), Error);
  }
  std::ifstream in(path_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t at = bytes.find(source);
  ASSERT_NE(at, std::string::npos);
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at + 100));
    file << 'b';
  }
  Archive archive(path_);  // SQLite sees nothing wrong
  try {
    archive.candidate_source(hash);
    FAIL() << "gave another source";
  } catch (const Error& error) { EXPECT_EQ(error.text().code, "archive-corrupt"); }
}

TEST_F(ArchiveTest, AnotherProgramsDatabaseIsLeftAlone) {
  fs::create_directories(path_.parent_path());
  { Database(path_).execute("CREATE TABLE theirs(x)"); }
  EXPECT_THROW(Archive archive(path_), Error);
  Database database(path_);
  EXPECT_NO_THROW(database.execute("SELECT x FROM theirs"));
}

TEST_F(ArchiveTest, ProcessesWritingAtOnceLoseNothing) {
  { Archive archive(path_); }
  constexpr int kWriters = 4, kEach = 25;
  for (int writer = 0; writer < kWriters; ++writer)
    if (fork() == 0) {
      try {
        Archive archive(path_);
        for (int i = 0; i < kEach; ++i) store_one(archive, std::to_string(writer) + "/" + std::to_string(i));
      } catch (...) { _exit(1); }
      _exit(0);
    }
  for (int writer = 0; writer < kWriters; ++writer) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  Archive archive(path_);
  EXPECT_EQ(archive.results().size(), static_cast<size_t>(kWriters * kEach));
}

TEST_F(ArchiveTest, KilledWriterLeavesWholeResults) {
  { Archive archive(path_); }
  const pid_t child = fork();
  if (child == 0) {
    Archive archive(path_);
    for (int i = 0;; ++i) store_one(archive, std::to_string(i));
  }
  usleep(150'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Archive archive(path_);
  const auto results = archive.results("", 1'000'000);
  EXPECT_GT(results.size(), 0u);
  for (const ResultRecord& result : results) EXPECT_FALSE(archive.candidate_source(result.candidate).empty());
  store_one(archive, "after");
}

TEST_F(ArchiveTest, AnEarlierVersionGetsTheTablesThatCameSince) {
  ResultKey key;
  {
    Archive archive(path_);
    key = store_one(archive, "a", "kept");
  }
  {
    Database database(path_);
    database.execute("DROP TABLE judgements; DROP TABLE completions; PRAGMA user_version = 1");
  }
  Archive archive(path_);
  EXPECT_EQ(archive.find(key)->report, "kept");
  archive.add(CompletionRecord{.problem = key.problem,
                               .run = "r",
                               .sample = 0,
                               .turn = 0,
                               .model = "m",
                               .request = "{}",
                               .text = "t",
                               .usage = "{}",
                               .hash = "",
                               .created = ""});
  EXPECT_EQ(archive.completions("r").size(), 1u);
  Database database(path_);
  EXPECT_THROW(database.execute("DELETE FROM completions"), Error);
}

TEST_F(ArchiveTest, CompletionsComeWithTheirJudgements) {
  Archive archive(path_);
  const ResultKey key = store_one(archive, "a");
  const auto completion = [&](int sample, int turn) {
    return archive.add(CompletionRecord{.problem = key.problem,
                                        .run = "r",
                                        .sample = sample,
                                        .turn = turn,
                                        .model = "m",
                                        .request = "{}",
                                        .text = "text",
                                        .usage = "{}",
                                        .hash = "",
                                        .created = ""});
  };
  const std::string second = completion(1, 0), repaired = completion(0, 1), first = completion(0, 0);
  EXPECT_EQ(completion(0, 0), first);
  archive.add(JudgementRecord{.completion = first,
                              .candidate = archive.add_candidate("c"),
                              .verdict = "",
                              .passed = true,
                              .record = R"({"code":"pass"})"});
  archive.add(JudgementRecord{
      .completion = first, .candidate = "", .verdict = "", .passed = false, .record = "another opinion"});
  const auto found = archive.completions("r");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].completion.hash, first);
  EXPECT_TRUE(found[0].judged);
  EXPECT_TRUE(found[0].judgement.passed);
  EXPECT_EQ(found[1].completion.hash, repaired);
  EXPECT_EQ(found[2].completion.hash, second);
  EXPECT_FALSE(found[2].judged);
  EXPECT_TRUE(archive.completions("other").empty());
}

}  // namespace
}  // namespace kw
