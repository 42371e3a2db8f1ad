#include <gradwire/launch.hpp>

#include <gtest/gtest.h>

#include <functional>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

env torchrun() {
  env made;
  made.rank = "2";
  made.world_size = "4";
  made.local_rank = "1";
  made.master_addr = "node7";
  made.master_port = "29400";
  return made;
}

env mpirun() {
  env made;
  made.ompi_rank = "3";
  made.ompi_size = "4";
  made.ompi_local_rank = "3";
  made.ompi_local_size = "4";
  made.ompi_job = "prterun-host-17@1";
  return made;
}

env srun() {
  env made;
  made.slurm_rank = "5";
  made.slurm_step = "0";
  made.slurm_size = "8";
  made.slurm_local_rank = "1";
  made.slurm_job = "123456";
  made.slurm_nodes = "node[03-06,09],login1";
  return made;
}

void expect_refused(env const& made, std::string const& name) {
  try {
    static_cast<void>(detect_launch(made));
    FAIL() << "accepted, but " << name << " is wrong";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::invalid_argument);
    EXPECT_NE(std::string{why.what()}.find(name), std::string::npos) << why.what();
  }
}

TEST(Launch, NothingIsDetectedWithoutALauncher) {
  EXPECT_FALSE(detect_launch(env{}).has_value());
  env other;
  other.master_addr = "node7";
  other.rendezvous = "tcp://a:1";
  EXPECT_FALSE(detect_launch(other).has_value());
}

TEST(Launch, TorchrunGivesItsPlaceAndMaster) {
  auto const place = detect_launch(torchrun());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "torchrun");
  EXPECT_EQ(place->rank, 2U);
  EXPECT_EQ(place->world, 4U);
  EXPECT_EQ(place->local_rank, 1U);
  EXPECT_EQ(place->rendezvous, "tcp://node7:29400");
}

TEST(Launch, WhereTorchrunHoldsItsPortItselfTheNextOneIsTaken) {
  auto made = torchrun();
  made.agent_store = "True";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://node7:29401");
  made.master_port = "65535";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://node7:65534");
  made.agent_store = "False";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://node7:65535");
}

TEST(Launch, AnIpv6MasterIsPutInBrackets) {
  auto made = torchrun();
  made.master_addr = "fe80::1";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://[fe80::1]:29400");
}

TEST(Launch, OurOwnVariableDecidesTheRendezvousOfEveryLauncher) {
  for (auto made : {torchrun(), mpirun(), srun()}) {
    made.rendezvous = "file:///shared/run7";
    made.master_port = "garbled";
    made.slurm_nodes.reset();
    made.ompi_job.reset();
    EXPECT_EQ(detect_launch(made)->rendezvous, "file:///shared/run7");
  }
}

TEST(Launch, MpirunOnOneMachineMeetsInAFolderNamedAfterTheJob) {
  auto const place = detect_launch(mpirun());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "mpirun");
  EXPECT_EQ(place->rank, 3U);
  EXPECT_EQ(place->local_rank, 3U);
  EXPECT_TRUE(place->rendezvous.starts_with("file:///")) << place->rendezvous;
  EXPECT_TRUE(place->rendezvous.ends_with("prterun-host-17@1")) << place->rendezvous;
}

TEST(Launch, MpirunOnSeveralMachinesNeedsTheirAddress) {
  auto made = mpirun();
  made.ompi_local_rank = "1";
  made.ompi_local_size = "2";
  expect_refused(made, "MASTER_ADDR");
  made.master_addr = "node7";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://node7:29500");
  made.master_port = "4000";
  EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://node7:4000");
}

TEST(Launch, WithoutARendezvousThePlaceIsEnough) {
  auto made = mpirun();
  made.ompi_local_rank = "1";
  made.ompi_local_size = "2";
  made.ompi_job.reset();
  auto const place = detect_launch(made, false);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3U);
  EXPECT_EQ(place->rendezvous, "");
  made.rendezvous = "tcp://node7:1";
  EXPECT_EQ(detect_launch(made, false)->rendezvous, "tcp://node7:1");
}

TEST(Launch, SrunTakesTheFirstHostAndAPortFromTheJob) {
  auto const place = detect_launch(srun());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "srun");
  EXPECT_EQ(place->rank, 5U);
  EXPECT_EQ(place->world, 8U);
  EXPECT_EQ(place->rendezvous, "tcp://node03:23456");  // 20000 + 123456 modulo 10000
}

TEST(Launch, TheScriptOfAnSbatchJobIsNoRank) {
  for (auto const* const step : {"", "batch", "4294967291"}) {  // SLURM_BATCH_SCRIPT is 0xfffffffb in slurm.h
    auto script = srun();
    script.slurm_step = step;
    EXPECT_FALSE(detect_launch(script)) << step;
  }
  auto without = srun();
  without.slurm_step.reset();
  EXPECT_FALSE(detect_launch(without));
}

TEST(Launch, EveryFormOfSlurmHostListIsRead) {
  for (auto const& [list, first] :
       {std::pair{"n1", "n1"}, std::pair{"n1,n2", "n1"}, std::pair{"n[7]", "n7"}, std::pair{"n[07-12]", "n07"},
        std::pair{"n[3,5-6],m1", "n3"}, std::pair{"rack[1-2]n[08-09]", "rack1n08"},
        std::pair{"gpu[1-2].site", "gpu1.site"}}) {
    auto made = srun();
    made.slurm_nodes = list;
    EXPECT_EQ(detect_launch(made)->rendezvous, "tcp://" + std::string{first} + ":23456") << list;
  }
  for (auto const* const list : {"n[", "n[]", "[", ",n1", ""}) {
    auto made = srun();
    made.slurm_nodes = list;
    expect_refused(made, "SLURM_JOB_NODELIST");
  }
}

TEST(Launch, EveryMissingVariableIsNamed) {
  auto const without = [](env made, std::optional<std::string> env::*variable) {
    made.*variable = std::nullopt;
    return made;
  };
  expect_refused(without(torchrun(), &env::rank), "RANK");
  expect_refused(without(torchrun(), &env::world_size), "WORLD_SIZE");
  expect_refused(without(torchrun(), &env::master_addr), "MASTER_ADDR");
  expect_refused(without(torchrun(), &env::master_port), "MASTER_PORT");
  expect_refused(without(mpirun(), &env::ompi_rank), "OMPI_COMM_WORLD_RANK");
  expect_refused(without(mpirun(), &env::ompi_size), "OMPI_COMM_WORLD_SIZE");
  expect_refused(without(mpirun(), &env::ompi_job), "PMIX_NAMESPACE");
  expect_refused(without(srun(), &env::slurm_size), "SLURM_NTASKS");
  expect_refused(without(srun(), &env::slurm_nodes), "SLURM_JOB_NODELIST");
  expect_refused(without(srun(), &env::slurm_job), "SLURM_JOB_ID");
}

TEST(Launch, EveryGarbledVariableIsNamed) {
  auto const with = [](env made, std::optional<std::string> env::*variable, char const* value) {
    made.*variable = value;
    return made;
  };
  for (auto const* const bad : {"x", "-1", "1.5", " 1", "1 ", "99999999999999999999", "4"}) {
    expect_refused(with(torchrun(), &env::rank, bad), "RANK");
    expect_refused(with(mpirun(), &env::ompi_rank, bad), "OMPI_COMM_WORLD_RANK");
    expect_refused(with(torchrun(), &env::local_rank, bad), "LOCAL_RANK");
  }
  for (auto const* const bad : {"x", "0", "-4", ""}) {
    expect_refused(with(torchrun(), &env::world_size, bad), "WORLD_SIZE");
    expect_refused(with(srun(), &env::slurm_size, bad), "SLURM_NTASKS");
    expect_refused(with(torchrun(), &env::master_port, bad), "MASTER_PORT");
  }
  expect_refused(with(torchrun(), &env::master_port, "65536"), "MASTER_PORT");
  expect_refused(with(srun(), &env::slurm_rank, "8"), "SLURM_PROCID");
  expect_refused(with(srun(), &env::slurm_job, "12a"), "SLURM_JOB_ID");
}

}  // namespace
}  // namespace gradwire
