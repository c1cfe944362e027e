variable "name" {
  type = string
}

variable "wanted" {
  type = any
}

variable "root" {
  type = string
}

locals {
  home   = "${var.root}/${var.wanted.cluster}/${var.name}"
  number = try(tonumber(regex("[0-9]+$", var.name)), 0)
  net    = startswith(var.wanted.cluster, "blue") ? 66 : 67
}

resource "terraform_data" "instance" {
  input = {
    cluster    = var.wanted.cluster
    generation = var.wanted.generation
    image      = var.wanted.image
    flavor     = var.wanted.flavor
    zone       = var.wanted.zone
    home       = local.home
    address    = cidrhost("127.${local.net}.0.0/16", local.number + 1)
  }
  triggers_replace = [var.wanted.generation, var.wanted.image, var.wanted.flavor]

  provisioner "local-exec" {
    command     = "test ! -e ../refuse || { cat ../refuse >&2; rm ../refuse; exit 1; }; test \"$image\" != no-such-image || { echo 'Invalid value: no such image' >&2; exit 1; }; mkdir -p \"$home\""
    working_dir = "${var.root}/${var.wanted.cluster}"
    environment = { home = self.input.home, image = self.input.image }
  }
  provisioner "local-exec" {
    when        = destroy
    command     = "rm -rf \"$home\""
    environment = { home = self.output.home }
  }
}

resource "terraform_data" "boot" {
  input            = var.wanted.boot
  triggers_replace = [terraform_data.instance.id, var.wanted.boot]

  provisioner "local-exec" {
    command     = "rm -f dead; TIDE_NODE=\"$name\" sh -c \"$script\" >said"
    working_dir = terraform_data.instance.output.home
    environment = { name = var.name, script = var.wanted.user_data }
  }
}

output "facts" {
  value = {
    id         = terraform_data.instance.id
    cluster    = terraform_data.instance.output.cluster
    generation = terraform_data.instance.output.generation
    image      = terraform_data.instance.output.image
    flavor     = terraform_data.instance.output.flavor
    zone       = terraform_data.instance.output.zone
    address    = terraform_data.instance.output.address
    boot       = terraform_data.boot.output
    state      = fileexists("${local.home}/dead") ? "broken" : "running"
  }
}
