// What the archive stores. Every record with a hash is addressed by the SHA-256 of its content, time left out.
#pragma once

#include <cstdint>
#include <string>

namespace kw {

struct ProblemRecord {
  std::string name;  // the file's stem
  std::string path;
  std::string source;  // with the local modules it imports, so that a change in them is another problem
};

struct ProposalRecord {
  std::string problem, candidate;  // hashes
  std::string target;              // its name
  std::string proposer;            // "scheduler", "search", "person", "llm:MODEL"
  std::string emitter;             // version of what printed it
  std::string schedule;            // JSON, or empty
};

struct VerdictRecord {
  std::string problem, candidate, environment;  // hashes
  std::string policy;
  bool passed = false;
  std::string reason;
  std::string figures;  // JSON: everything the verdict rests on
};

struct MeasurementRecord {
  std::string problem, candidate, environment;  // hashes; candidate may be empty
  std::string samples;                          // JSON: the raw samples and how they were taken
};

// What must agree for a stored result to answer a new question.
struct ResultKey {
  std::string problem;  // hash
  std::string target, policy, emitter;
  std::string environment;  // hash
};

struct ResultRecord {
  int64_t id = 0;  // 0: not yet stored
  ResultKey key;
  std::string problem_name;                     // filled when read
  std::string candidate, verdict, measurement;  // hashes; measurement may be empty
  std::string report;                           // JSON, as reported
  std::string created;                          // filled when read
};

// What a language model answered. `run` names the settings that samples of one kind share; a sample's turn after the
// first is a repair.
struct CompletionRecord {
  std::string problem, run;  // hashes
  int sample = 0, turn = 0;
  std::string model;
  std::string request;  // JSON: messages or raw text, sampling parameters, template. Never a key
  std::string text;
  std::string usage;          // JSON: how it ended, tokens, seconds
  std::string hash, created;  // filled when read
};

struct JudgementRecord {
  std::string completion;          // hash
  std::string candidate, verdict;  // hashes; either may be empty
  bool passed = false;
  std::string record;  // JSON: repairs, code, reason, seconds
};

struct JudgedCompletion {
  CompletionRecord completion;
  bool judged = false;
  JudgementRecord judgement;
};

std::string hash_of(const CompletionRecord& record);
std::string hash_of(const ProblemRecord& record);
std::string hash_of(const ProposalRecord& record);
std::string hash_of(const VerdictRecord& record);
std::string hash_of(const MeasurementRecord& record);

}  // namespace kw
