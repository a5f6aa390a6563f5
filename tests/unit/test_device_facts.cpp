#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "propose/device_facts.hpp"
#include "propose/prompt_facts.hpp"
#include "support/scratch.hpp"
#include "targets/targets.hpp"

using namespace kw;

TEST(DeviceFacts, WhatTheArchiveKnowsTakesThePlaceOfTheDefaults) {
  const Scratch scratch;
  Archive archive(scratch.folder() + "/archive.db");
  Environment environment;
  environment.cpu_threads = 6;
  const std::string hash = archive.add_environment(environment.description_json());
  const Target& target = target_named("cpu");
  const DeviceDescription defaults = target.default_device();
  EXPECT_FALSE(known_ceilings(archive, hash, "cpu"));
  EXPECT_EQ(known_device(archive, environment, hash, target, nullptr).fp32_flops, defaults.fp32_flops);

  archive.add_fact(hash, "ceilings cpu",
                   R"({"name": "c", "copy_bytes_per_second": 2e10, "read_bytes_per_second": "fast",)"
                   R"("flops": {"fp32": 3e12, "tf32": null}, "launch_seconds": 1e-6})");
  archive.add_fact(hash, "calibration cpu", R"({"gather_bytes_per_second": 4e9, "launch_seconds": 2e-6})");
  const DeviceDescription known = known_device(archive, environment, hash, target, nullptr);
  EXPECT_EQ(known.units, 6);
  EXPECT_EQ(known.copy_bytes_per_second, 2e10);
  EXPECT_EQ(known.read_bytes_per_second, defaults.read_bytes_per_second) << "it is no number";
  EXPECT_EQ(known.fp32_flops, 3e12);
  EXPECT_EQ(known.gather_bytes_per_second, 4e9);
  EXPECT_EQ(known.launch_seconds, 2e-6) << "the calibration's";
  EXPECT_EQ(device_in_words(archive, environment, hash, target),
            "this CPU, 20 GB/s of memory bandwidth, 3 TFLOP/s in fp32");
  EXPECT_FALSE(known_ceilings(archive, hash, "cuda"));
}

TEST(DeviceFacts, CalibrationsWithoutLongProductsLeaveTheDefault) {
  const Target& target = target_named("triton");
  const double usual = target.default_device().sustained_share;
  EXPECT_EQ(target_named("cpu").default_device().sustained_share, 1);
  EXPECT_LT(usual, 1);
  for (const auto& [said, share] : {std::pair(R"({"launch_seconds": 2e-6})", usual),
                                    {R"({"launch_seconds": 2e-6, "sustained_share": null})", usual},
                                    {R"({"sustained_share": "all"})", usual},
                                    {R"({"sustained_share": 0})", usual},
                                    {R"({"launch_seconds": 2e-6, "sustained_share": 0.7})", 0.7},
                                    {R"({"sustained_share": 1.01})", 1.0}}) {
    const Scratch scratch;
    Archive archive(scratch.folder() + "/archive.db");
    const Environment environment;
    const std::string hash = archive.add_environment(environment.description_json());
    archive.add_fact(hash, "calibration cuda", said);
    EXPECT_EQ(known_device(archive, environment, hash, target, nullptr).sustained_share, share) << said;
  }
}

TEST(DeviceFacts, AGpuHasTheMultiprocessorsThatTheWorkerCounts) {
  const Scratch scratch;
  Archive archive(scratch.folder() + "/archive.db");
  const Environment environment;
  const std::string hash = archive.add_environment(environment.description_json());
  const Target& target = target_named("triton");
  const auto card = nlohmann::ordered_json::parse(R"({"name": "A10G", "multiprocessors": 80, "l2_bytes": 6291456,
                                                     "shared_bytes": 101376})");
  const DeviceDescription known = known_device(archive, environment, hash, target, card);
  EXPECT_EQ(known.name, "A10G");
  EXPECT_EQ(known.units, 80);
  EXPECT_EQ(known.cache_bytes, 6291456);
  EXPECT_EQ(known.shared_bytes, 101376);
  EXPECT_EQ(known_device(archive, environment, hash, target, nullptr).units, target.default_device().units);
}
