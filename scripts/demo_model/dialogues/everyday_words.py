"""Words of everyday scenes: trades, papers, bins, dishes, occasions, reasons, errands."""

from .lexicon import (
    words,
)

ORDINALS = [f"{n}{'th' if 4 <= n <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}" for n in range(1, 32)]


NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()


COMPARATIVES = words("""bigger larger smaller heavier lighter faster slower older newer cheaper longer shorter wider taller stronger warmer
better quieter louder softer thicker thinner deeper brighter cleaner stiffer""")


PERSONAL = words("""older younger taller shorter stronger faster slower louder quieter smarter richer busier kinder funnier stricter
lazier braver calmer happier thinner heavier""")


PROFESSIONS = words("""dentist doctor vet hairdresser physio optician lawyer accountant barber therapist plumber electrician carpenter
painter gardener mechanic locksmith roofer tailor cleaner tutor trainer masseur tiler glazier chimney_sweep eye_doctor tax_adviser""")


DOCUMENTS = words("""passport visa driving_licence ID_card bus_pass gym_membership library_card travel_insurance credit_card work_permit
parking_permit subscription contract lease student_card warranty season_ticket fishing_licence membership""")


MEDICINES = words("""ibuprofen aspirin insulin magnesium iron vitamin_D vitamin_B12 antibiotics cough_syrup eye_drops the_blue_pills the_white_pills
the_red_capsules the_pink_tablets paracetamol melatonin zinc the_nose_spray the_ointment the_painkillers the_heart_pills the_green_drops""")


BINS = words("""the_green_bin the_black_bin the_blue_bin the_brown_bin the_yellow_bin the_trash the_garbage the_recycling the_paper
the_glass the_cardboard the_garden_waste the_compost the_bulky_waste the_plastic the_food_waste the_old_clothes the_laundry the_post""")


DISHES = words("""chili lasagne soup stew bread cake curry pie risotto goulash pizza salad pancakes roast casserole bread_pudding muffins
cookies brownies meatloaf quiche pasta_sauce ratatouille gravy gingerbread cheesecake apple_pie lentil_soup banana_bread focaccia""")


OCCASIONS = words("""Christmas her_birthday his_birthday the_birthday Easter the_wedding graduation Mother's_Day Father's_Day the_anniversary
New_Year the_housewarming Valentine's_Day Hanukkah Eid the_christening retirement the_baby_shower""")


ACTIVITIES = words("""swimming running climbing dancing rowing sailing cycling judo yoga pilates karate ballet singing pottery painting
fencing boxing skating surfing hiking riding archery bowling gardening chess diving gymnastics woodworking drumming knitting sculpting""")


OCCUPIED = words(
    "bakery pharmacy library gym pool museum bank post_office butcher cinema supermarket market bookshop laundry garage clinic cafe restaurant zoo swimming_pool recycling_centre town_hall florist hardware_shop bike_shop school_office canteen kiosk barber"
)


KIDS = words(
    "our_son our_daughter my_son my_daughter my_nephew my_niece my_grandson my_granddaughter the_twins Ben Mia Leo Lucy Noah Emma Zoe Max Ida"
)


CONTACTS = words(
    "the_caretaker the_landlord the_plumber the_doctor the_vet the_office the_school the_bank the_taxi the_babysitter the_hotel the_insurance the_pharmacy the_garage the_help_desk the_neighbours the_reception the_club my_boss my_lawyer"
)


VEHICLES = words(
    "the_car my_car the_bike my_bike the_motorbike my_scooter the_van the_lawnmower my_laptop my_phone the_dishwasher my_watch the_boat the_tractor the_camper the_washing_machine our_car the_truck the_piano my_camera"
)


PETS = words(
    "dog cat horse rabbit parrot hamster goldfish tortoise canary guinea_pig budgie pony ferret goat lizard kitten puppy donkey hen snake"
)


NETWORKS = words(
    "wifi Wifi WLAN printer guest_wifi router laptop server Netflix alarm email_account office_wifi tablet safe admin_account bank_app projector NAS streaming_account booking_site intranet vault backup_drive work_laptop phone hotspot VPN"
)


LOCKED = words(
    "gate garage front_door back_door safe alarm bike_lock locker suitcase cellar key_box office shed main_door parking_garage gym mailbox vault phone_lock padlock barn staff_entrance lift side_gate tool_shed pool gun_cabinet elevator bathroom"
)


ORDERS = words(
    "order booking ticket invoice passport customer membership policy case tracking reservation claim account loyalty_card library_card insurance room voucher contract registration parcel rental tax student_ID serial frequent_flyer gift_card"
)


GROUPS = words(
    "choir book_club band yoga_class chess_club support_group orchestra drama_group football_team running_group knitting_circle scout_troop debating_society board_game_night study_group rowing_team quiz_night sewing_circle reading_group band_practice language_class parents'_group photo_club bridge_club"
)


TASKS = words(
    "report slides budget presentation newsletter poster translation invoice proposal survey draft menu website catering tax_return essay homework thesis application seating_plan music invitations decoration contract timetable minutes release backup inventory playlist cake_order catalogue data_analysis bug_fix login_page test_plan grant_application poster_design"
)


HOUSEHOLD = words("""spare_key first_aid_kit stapler fuse_box screwdriver hammer ladder toolbox torch remote scissors tape extension_cord vacuum_cleaner iron sewing_kit
corkscrew spare_bulbs fire_extinguisher water_meter stopcock cat_carrier passport charger umbrella good_china wrapping_paper glue batteries bike_pump tent sleeping_bag camera box_of_photos Christmas_decorations
drill paint tax_folder birth_certificate will spare_tyre car_key cellar_key house_key garden_hose thermometer medicine instruction_manual picnic_blanket air_pump spare_glasses hot-water_bottle cookie_tin whisky sledge""")


CARS = words(
    "the_car my_car my_bike the_van our_car the_bike my_motorbike the_scooter the_rental_car the_camper the_truck my_moped the_jeep"
)


SCHOOL = words(
    "maths biology chemistry history French Spanish PE music art geography physics Latin English drama economics philosophy computing statistics religion woodwork linear_algebra algorithms anatomy"
)


SUBSCRIPTIONS = words(
    "the_gym Netflix the_newspaper the_phone_contract the_internet the_insurance the_cloud_storage the_parking_space the_music_service the_magazine the_storage_unit the_electricity the_water the_bus_pass the_language_app the_web_hosting the_box_of_vegetables"
)


GAMES = words(
    "final semi-final match game derby cup_final friendly quarter-final chess_game tennis_match quiz playoff hockey_game opener rematch tournament season_opener"
)


ILLNESSES = words(
    "flu a_cold a_broken_arm measles a_sprained_ankle migraine bronchitis a_fever chickenpox hay_fever asthma tonsillitis a_broken_leg a_bad_back pneumonia a_stomach_bug an_ear_infection sunburn a_toothache diabetes Covid mumps food_poisoning a_sore_throat"
)


ROLES = words(
    "president captain chair treasurer secretary director manager coach founder owner head_chef spokesperson deputy leader conductor principal mayor chief_editor accountant caretaker goalkeeper head_nurse CEO CTO head_of_sales team_lead curator landlord trainer producer host chairman intern head_gardener"
)


METRICS = words(
    "revenue profit turnover the_budget the_deficit output attendance the_error_rate the_growth_rate inflation the_number_of_visitors churn the_workload the_headcount membership rainfall the_water_level production the_harvest the_electricity_bill the_number_of_sales traffic the_average_price conversion uptime"
)


TOGETHER = words(
    "play_chess play_tennis go_hiking go_swimming cook_dinner meet_for_coffee watch_the_game go_to_the_cinema play_cards work_out have_lunch sing_together go_shopping paint_the_fence study_together go_dancing record_the_song clean_the_garage rehearse play_squash go_fishing visit_the_museum bake_bread ride_to_work"
)


BRANDS = words(
    "Volvo Toyota Fiat Ford Skoda Kia Honda Mazda Opel Tesla Saab Audi Seat Renault Nissan Subaru Lada Peugeot Jeep Suzuki"
)


PARTICIPLES = words(
    "repaired repainted cleaned replaced inspected insured sharpened polished tuned serviced sold washed restored tested valued upholstered moved shortened welded rewired oiled waxed dyed framed photographed scanned recycled"
)


MEALS = words("breakfast lunch dinner supper dessert the_picnic the_party brunch starters the_barbecue tea the_trip")


ROOMS = words(
    "kitchen bathroom bedroom living_room hallway guest_room attic cellar study nursery dining_room garage office playroom balcony spare_room laundry_room library pantry conservatory"
)


TOOLS = words(
    "Python Node Ruby Rust Docker Postgres Redis the_backend the_frontend the_simulator the_parser the_scheduler the_crawler Nginx Java Go Terraform the_dashboard the_compiler the_linter the_bot the_daemon the_test_suite"
)


STATES = words(
    "cancelled confirmed approved rejected pending done delayed broken finished paid unpaid open closed sold_out fully_booked on_hold archived out_of_order empty full locked reserved under_review lost online offline shipped returned expired unknown"
)


DIRECTIONS = words(
    "left right straight_on north south east west uphill downhill north-west south-east back sharp_left slightly_right"
)


ORDINAL_WORDS = words("first second third fourth fifth sixth seventh eighth ninth tenth last top bottom middle")


REASONS = """the {o} broke|{p} was ill|the train was late|there was too much traffic|the {o} got stolen|{p} forgot the {o}|the {a} {o} didn't work|the road was closed|it rained all day
the alarm clock didn't ring|{p} had a fever|the {o} was missing|the bus never came|the dog ate the {o}|{p} missed the bus|the {a} {o} is broken|the bridge is closed|the battery was empty|{p} lost the {o}
the kids were sick|the meeting took too long|the power went out|the {o} is too {a}|there was a strike|the flight got cancelled|{p} needs the car|the {o} caught fire|a pipe burst|the shop ran out of {f}""".replace("\n", "|").split("|")  # fmt: skip


ERRANDS = """pick up the kids|pick up {p}|bring the {f}|do the dishes|walk the dog|feed the cat|water the plants|call {p}|book the hotel|buy the tickets|drive {p} home|clean the {o}|cook dinner|take out the trash
send the invitations|write the report|give the speech|open the shop|lock up|set the table|chair the meeting|take notes|pay the bill|mow the lawn|order the {f}|collect the parcel|fix the {o}|paint the {o}
bring the {o}|carry the {o}|present the {a} {o}|drive the van|take {p} to the airport|help {p} with the move|bake the cake|make the {f}|print the {o}|return the {o}|look after the {o}|babysit|do the shopping
translate the letter|record the song|test the {o}|pack the {o}|clean the kitchen|play the {o}|sign the contract|check the {o}|order a {o}|wash the car|do the accounts|run the stall|welcome the guests""".replace("\n", "|").split("|")  # fmt: skip
