#include "cli/machine_facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace turbo::cli {
namespace {
namespace fs = std::filesystem;

class MachineFacts : public ::testing::Test {
 protected:
  MachineFacts() : root(fs::temp_directory_path() / ("turbo_facts_" + std::to_string(::getpid()))) { fs::create_directories(root); }
  ~MachineFacts() override { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
  }
  fs::path root;
};

TEST_F(MachineFacts, DisplaysOfThePciBus) {
  const std::string card = "sys/bus/pci/devices/0000:03:00.0/", disk = "sys/bus/pci/devices/0000:01:00.0/";
  write(card + "class", "0x030000\n");
  write(card + "vendor", "0x1002\n");
  write(card + "device", "0x73df\n");
  write(card + "mem_info_vram_total", "12868124672\n");
  write(card + "current_link_width", "16\n");
  link(card + "driver", "../../../bus/pci/drivers/amdgpu");
  write(disk + "class", "0x010802\n");
  const auto displays = display_facts(root);
  ASSERT_EQ(displays.size(), 1u);
  EXPECT_EQ(displays[0]["slot"], "0000:03:00.0");
  EXPECT_EQ(displays[0]["vendor"], "0x1002");
  EXPECT_EQ(displays[0]["device"], "0x73df");
  EXPECT_EQ(displays[0]["driver"], "amdgpu");
  EXPECT_EQ(displays[0]["link_width"], "16");
  EXPECT_EQ(displays[0]["video_memory"], "12.0 GiB");
  EXPECT_FALSE(displays[0].contains("revision"));
  EXPECT_TRUE(display_facts(root / "nowhere").empty());
}

TEST_F(MachineFacts, DriverTellsTheInstructionSet) {
  EXPECT_EQ(driver_facts(root)["amdgpu"], "not loaded");
  write("sys/module/amdgpu/version", "6.7.0\n");
  write("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 16\ngfx_target_version 0\n");
  write("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 80\ngfx_target_version 100301\nvendor_id 4098\n");
  write("sys/class/kfd/kfd/topology/nodes/2/properties", "gfx_target_version 90010\n");
  const auto driver = driver_facts(root);
  EXPECT_EQ(driver["amdgpu"], "loaded");
  EXPECT_EQ(driver["amdgpu_version"], "6.7.0");
  ASSERT_EQ(driver["compute_nodes"].size(), 2u);
  EXPECT_EQ(driver["compute_nodes"][0]["gfx"], "gfx1031");
  EXPECT_EQ(driver["compute_nodes"][0]["simds"], "80");
  EXPECT_EQ(driver["compute_nodes"][1]["gfx"], "gfx90a");
}

TEST_F(MachineFacts, DeviceFilesAndTheirPermissions) {
  EXPECT_EQ(node_facts(root)["nodes"][0]["state"], "not there");
  write("dev/kfd", "");
  write("dev/dri/renderD128", "");
  write("dev/dri/card0", "");
  ::chmod((root / "dev/kfd").c_str(), 0660);
  ::chmod((root / "dev/dri/renderD128").c_str(), 0400);
  const auto nodes = node_facts(root)["nodes"];
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0]["path"], "/dev/kfd");
  EXPECT_EQ(nodes[0]["mode"], "0660");
  EXPECT_EQ(nodes[0]["usable"], true);
  EXPECT_EQ(nodes[1]["path"], "/dev/dri/renderD128");
  EXPECT_EQ(nodes[1]["mode"], "0400");
  EXPECT_EQ(nodes[1]["usable"], ::geteuid() == 0);
}

TEST_F(MachineFacts, RuntimesWhereverTheyLie) {
  write("usr/lib/x86_64-linux-gnu/libamdhip64.so.5.2.50221", "");
  link("usr/lib/x86_64-linux-gnu/libamdhip64.so.5", "libamdhip64.so.5.2.50221");
  write("opt/rocm-6.4.0/lib/libamdhip64.so.6", "");
  write("opt/rocm-6.4.0/.info/version", "6.4.0-47\n");
  link("opt/elsewhere/lib/libamdhip64.so.7", "gone");
  write("etc/ld.so.conf.d/extra.conf", "# comment\n/opt/elsewhere/lib\n");
  const auto facts = runtime_facts(root);
  std::map<std::string, std::string> found;
  for (const auto& library : facts["libamdhip64"]) found[library["file"]] = library["is"];
  EXPECT_EQ(found["/usr/lib/x86_64-linux-gnu/libamdhip64.so.5"], "libamdhip64.so.5.2.50221");
  EXPECT_EQ(found["/opt/rocm-6.4.0/lib/libamdhip64.so.6"], "libamdhip64.so.6");
  EXPECT_EQ(found["/opt/elsewhere/lib/libamdhip64.so.7"], "a link to nothing");
  EXPECT_EQ(facts["rocm"], nlohmann::ordered_json::array({"/opt/rocm-6.4.0: 6.4.0-47"}));
}

TEST(VariableFacts, NothingSecretIsShown) {
  const auto facts = variable_facts({"HSA_OVERRIDE_GFX_VERSION=10.3.0", "HIP_VISIBLE_DEVICES=0", "ROCR_VISIBLE_DEVICES=GPU-1", "TURBO_HIP_SYNC=1",
                                     "TURBO_API_KEY=hunter2", "TURBO_SERVER_KEY=hunter2", "TURBO_MINE=hunter2", "TURBO_PROMPT=hunter2",
                                     "TURBO_SET=server.api_keys=[hunter2]", "HIP_TOKEN=hunter2", "TURBO_THREADS=4", "HOME=/homes/hunter2", "PATH=/bin"});
  EXPECT_EQ(facts["HSA_OVERRIDE_GFX_VERSION"], "10.3.0");
  EXPECT_EQ(facts["HIP_VISIBLE_DEVICES"], "0");
  EXPECT_EQ(facts["ROCR_VISIBLE_DEVICES"], "GPU-1");
  EXPECT_EQ(facts["TURBO_HIP_SYNC"], "1");
  EXPECT_EQ(facts["TURBO_THREADS"], "4");
  EXPECT_EQ(facts["TURBO_API_KEY"], "(set, not shown)");
  EXPECT_EQ(facts["TURBO_MINE"], "(set, not shown)");
  EXPECT_FALSE(facts.contains("PATH"));
  EXPECT_EQ(facts.dump().find("hunter2"), std::string::npos) << facts.dump();
}

TEST(Tidy, BoundedAndPrintable) {
  EXPECT_EQ(tidy("a\tb\x1b[31m\n"), "a b [31m");
  EXPECT_EQ(tidy("abcdef", 3), "abc...");
  EXPECT_EQ(tidy("ä", 1), "...");  // no half of a character
}

TEST(Scrubber, NamesGoAndPartsOfWordsStay) {
  Scrubber scrubber;
  scrubber.replace("/homes/ann", "~");
  scrubber.replace("ann", "USER");
  scrubber.replace("box", "HOST");
  EXPECT_EQ(scrubber.text("/homes/ann/models on box, /media/ann/x, /homes/anna, annual, box7"), "~/models on HOST, /media/USER/x, /homes/anna, annual, box7");
  const nlohmann::ordered_json value{{"/homes/ann", {"box", 1, true, {{"deep", "ann"}}}}};
  EXPECT_EQ(scrubber.json(value).dump(), R"({"~":["HOST",1,true,{"deep":"USER"}]})");
}

}  // namespace
}  // namespace turbo::cli
