// The client against children that behave in every bad way a candidate may make the worker behave. A small Python
// program stands in for it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/worker_client.hpp"
#include "support/error.hpp"

namespace kw {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStandIn = R"py(
import json, os, signal, struct, sys, time
def send(message):
    body = json.dumps(message).encode()
    os.write(1, struct.pack("<I", len(body)) + body)
while True:
    header = sys.stdin.buffer.read(4)
    if not header:
        break
    request = json.loads(sys.stdin.buffer.read(struct.unpack("<I", header)[0]))
    id, method, params = request["id"], request["method"], request["params"]
    print("log of", method, file=sys.stderr, flush=True)
    if method == "echo":
        send({"id": id, "event": {"stage": "half", "fraction": 0.5}})
        send({"id": id, "result": params})
    elif method == "late":
        send({"id": id - 1, "result": "old"})
        send({"id": id, "result": "new"})
    elif method == "error":
        send({"id": id, "error": params})
    elif method == "wait":
        for _ in range(6):
            time.sleep(0.25)
            send({"id": id, "event": {"stage": "waiting for somebody", "fraction": -1, "waited": 0.25}})
        send({"id": id, "result": "had its turn"})
    elif method == "waits":
        while True:
            time.sleep(0.1)
            send({"id": id, "event": {"stage": "waiting", "waited": params["seconds"]}})
    elif method == "raw":
        send({"id": id, **params})
        time.sleep(60)
    elif method == "hang":
        time.sleep(60)
    elif method == "signal":
        os.kill(os.getpid(), params["signal"])
    elif method == "exit":
        os._exit(params["code"])
    elif method == "garbage":
        os.write(1, b"hello, this is a print\n")
        time.sleep(60)
    elif method == "chatter":
        sys.stderr.write("x" * (8 << 20)); sys.stderr.flush()
        send({"id": id, "result": len(params["text"])})
)py";

class WorkerClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kw-worker-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directories(folder_ / "kernelwright");
    std::ofstream(folder_ / "kernelwright" / "__init__.py") << "";
    std::ofstream(folder_ / "kernelwright" / "worker.py") << kStandIn;
    client_ = std::make_unique<WorkerClient>(WorkerOptions{"python3", folder_.string(), {}});
  }
  void TearDown() override {
    client_.reset();
    std::filesystem::remove_all(folder_);
  }
  WorkerFailure failure_of(const std::string& method, const Json& params, double limit = 20) {
    try {
      client_->request(method, params, limit);
    } catch (const WorkerFailure& failure) { return failure; }
    ADD_FAILURE() << method << " gave an answer";
    return {};
  }
  std::filesystem::path folder_;
  std::unique_ptr<WorkerClient> client_;
};

TEST_F(WorkerClientTest, WaitingForATurnDoesNotCountAgainstTheLimit) {
  client_->request("echo", {{"a", 1}}, 20);
  std::vector<std::string> whom;
  double waited = 0;
  const Json reply = client_->request(
      "wait", Json::object(), 1, [](const std::string&, double) { ADD_FAILURE() << "a wait is no stage"; },
      [&](const std::string& who, double seconds) { whom.push_back(who), waited += seconds; });
  EXPECT_EQ(reply, "had its turn");
  EXPECT_EQ(whom.size(), 6u);
  EXPECT_EQ(whom.front(), "waiting for somebody");
  EXPECT_DOUBLE_EQ(waited, 1.5);
}

TEST_F(WorkerClientTest, NoWaitIsLongerThanItWas) {
  for (const Json& seconds : {Json("nan"), Json(-5), Json(0)})
    EXPECT_EQ(failure_of("waits", {{"seconds", seconds}}, 1).kind, WorkerFailure::Kind::kHung) << seconds;
  double waited = 0;
  try {
    client_->request("waits", {{"seconds", "inf"}}, 1, {}, [&](const std::string&, double seconds) {
      waited += seconds;
      if (waited > 1.5) throw std::runtime_error("enough");
    });
  } catch (const std::runtime_error&) {}
  EXPECT_GT(waited, 1.5);
  EXPECT_LT(waited, 5);
}

TEST_F(WorkerClientTest, AMessageThatSaysNothingIsNoAnswer) {
  for (const Json& message : {Json{{"event", 5}}, Json{{"event", nullptr}}, Json::object(), Json{{"results", 1}}})
    EXPECT_EQ(failure_of("raw", message).kind, WorkerFailure::Kind::kBrokenProtocol) << message;
}

TEST_F(WorkerClientTest, ReturnsTheResultAndForwardsEvents) {
  std::string stage;
  const Json result = client_->request("echo", {{"text", "ü"}}, 20, [&](const std::string& name, double fraction) {
    stage = name + std::to_string(fraction);
  });
  EXPECT_EQ(result["text"], "ü");
  EXPECT_EQ(stage, "half0.500000");
}

TEST_F(WorkerClientTest, ErrorRepliesKeepTheirKindAndText) {
  const std::pair<const char*, int> kinds[] = {{"user", 2}, {"candidate", 1}, {"missing", 3}, {"internal", 4}};
  for (const auto& [kind, code] : kinds) try {
      client_->request("error", {{"kind", kind}, {"message", "m"}, {"where", "f.py:3"}, {"hint", "h"}, {"code", "c"}},
                       20);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code);
      EXPECT_EQ(error.text().where, "f.py:3");
    }
}

TEST_F(WorkerClientTest, SilentChildIsKilledAndReplaced) {
  EXPECT_EQ(failure_of("hang", Json::object(), 0.5).kind, WorkerFailure::Kind::kHung);
  EXPECT_FALSE(client_->running());
  EXPECT_EQ(client_->request("echo", 1, 20), 1);
}

TEST_F(WorkerClientTest, CrashExitAndOutOfMemoryAreToldApart) {
  EXPECT_EQ(failure_of("signal", {{"signal", 11}}).kind, WorkerFailure::Kind::kCrashed);
  EXPECT_EQ(failure_of("signal", {{"signal", 9}}).kind, WorkerFailure::Kind::kKilled);
  const WorkerFailure exited = failure_of("exit", {{"code", 5}});
  EXPECT_EQ(exited.kind, WorkerFailure::Kind::kExited);
  EXPECT_NE(exited.what.find("5"), std::string::npos);
  EXPECT_NE(exited.log.find("log of exit"), std::string::npos);
}

TEST_F(WorkerClientTest, TextOnThePipeIsNotTakenForAnAnswer) {
  EXPECT_EQ(failure_of("garbage", 1).kind, WorkerFailure::Kind::kBrokenProtocol);
}

TEST_F(WorkerClientTest, LateAnswersAreSkipped) { EXPECT_EQ(client_->request("late", 1, 20), "new"); }

TEST_F(WorkerClientTest, TheReplyToAPostedRequestIsLeftUnread) {
  client_->post("echo", "posted", 20);
  EXPECT_EQ(client_->request("echo", "asked", 20), "asked");
}

TEST_F(WorkerClientTest, LargeMessagesAndAFloodOnStandardErrorDoNotBlock) {
  EXPECT_EQ(client_->request("chatter", {{"text", std::string(4 << 20, 'a')}}, 20), 4 << 20);
}

TEST_F(WorkerClientTest, ProgramThatDoesNotExistIsMissing) {
  WorkerClient client(WorkerOptions{"no-such-python", folder_.string(), {}});
  try {
    client.request("echo", 1, 1);
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.exit_code(), 3); }
}

}  // namespace
}  // namespace kw
